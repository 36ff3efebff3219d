import os
import pathlib
import subprocess
import tempfile
import unittest

import tidy
import tree


class TreeTest(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        for name in ("client/a.cc", "build/b.cc", "data/c.bin"):
            (self.root / name).parent.mkdir(parents=True)
            (self.root / name).write_text("x\n", encoding="utf-8")

    def git(self, *args: str) -> None:
        env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *identity, *args], cwd=self.root, env=env, check=True, capture_output=True)

    def test_without_git_build_folders_are_left_out(self) -> None:
        self.assertEqual(list(tree.Tree.load(self.root).files), ["client/a.cc"])
        self.assertIsNone(tree.changed_files(self.root))

    def test_git_tells_the_files_and_what_changed(self) -> None:
        self.git("init", "--quiet")
        self.git("add", "client")
        self.git("commit", "--quiet", "--message=one")
        (self.root / ".gitignore").write_text("build\n", encoding="utf-8")
        (self.root / "client/new.cc").write_text("x\n", encoding="utf-8")
        self.assertEqual(list(tree.Tree.load(self.root).files), ["client/a.cc", "client/new.cc"])
        self.git("add", "client/new.cc")
        self.git("commit", "--quiet", "--message=two")
        self.assertEqual(tree.changed_files(self.root), {".gitignore", "client/new.cc", "data/c.bin"})

    def test_every_check_is_run(self) -> None:
        bad = {
            "client/a.cc": '#include "daemon/node/b.h"\n// "GRADGATE_X" \n',
            "proto/gradgate/v1/x.proto": "package gradgate.v1;\nmessage X {\n}\n",
            "client/CMakeLists.txt": "",
        }
        found = "\n".join(tidy.check_all(tree.Tree(bad)))
        for what in ("columns meet", "nothing builds it", "trailing blank", "has no comment", "is not in deploy/reference"):
            self.assertIn(what, found)


if __name__ == "__main__":
    unittest.main()
