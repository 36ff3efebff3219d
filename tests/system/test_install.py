"""A user's build: gradgate installed to a prefix, the trainer configured against that alone, and run."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

import case


class Install(case.SystemCase):
    def call(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_trainer_builds_against_an_installed_gradgate(self) -> None:
        prefix, source, build = self.folder / "prefix", self.folder / "examples" / "digits", self.folder / "build"
        self.call("cmake", "--install", str(self.binaries.folder.parent), "--prefix", str(prefix))
        shutil.copytree(case.ROOT / "examples" / "digits", source, ignore=shutil.ignore_patterns("__pycache__"))
        generator = os.environ.get("CMAKE_GENERATOR", "Ninja" if shutil.which("ninja") else "Unix Makefiles")
        self.call(
            "cmake", "-S", str(source), "-B", str(build), "-G", generator, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug"
        )
        self.call("cmake", "--build", str(build), "--parallel", "2")
        report = self.folder / "report.json"
        self.call(str(build / "digits"), "--ranks", "2", "--epochs", "1", *case.EXACT, *case.NO_DAEMON, "--report", str(report))
        linked = self.call("ldd", str(build / "digits"))
        library = next(line for line in linked.splitlines() if "libgradgate.so" in line)
        self.assertIn(str(prefix), library)
        for heavy in ("libgrpc", "libprotobuf", "libabsl"):
            self.assertNotIn(heavy, linked, "nothing of the daemon's comes into a trainer")
        alone = self.one_hash(self.train("--as-world", "2", "--epochs", "1", *case.EXACT, *case.NO_DAEMON))
        self.assertEqual(self.one_hash(case.read_report(report)), alone)

    def test_programs_come_with_manual_pages_and_completion(self) -> None:
        prefix = self.folder / "prefix"
        self.call("cmake", "--install", str(self.binaries.folder.parent), "--prefix", str(prefix))
        ctl = str(prefix / "bin" / "gradgatectl")
        for shell, path in (
            ("bash", "bash-completion/completions/gradgatectl"),
            ("zsh", "zsh/site-functions/_gradgatectl"),
            ("fish", "fish/vendor_completions.d/gradgatectl.fish"),
        ):
            self.assertEqual((prefix / "share" / path).read_text(), self.call(ctl, "completion", shell))
        page = (prefix / "share/man/man1/gradgatectl.1").read_text()
        for command in ("jobs", "policy set", "completion"):
            self.assertIn(f"\n.SS gradgatectl {command}\n", page)
        self.assertIn("\n.TP\n.B \\-\\-expected\\-version", page)
        self.assertIn("\n.SH EXIT STATUS\n.TP\n.B 0\n", page)
        daemon = (prefix / "share/man/man8/gradgated.8").read_text()
        for flag in re.findall(r"\n  --(\w+) ", self.call(str(prefix / "bin" / "gradgated"), "--help")):
            self.assertIn(f"\n.B \\-\\-{flag}\n", daemon)
        if shutil.which("groff"):
            for text in (page, daemon):  # as `man --warnings` has it
                done = subprocess.run(
                    ["groff", "-Kutf8", "-man", "-Tutf8", "-ww", "-z"], input=text, capture_output=True, text=True, timeout=60, check=True
                )
                self.assertEqual(done.stderr, "")

    def test_installed_headers(self) -> None:
        prefix = self.folder / "prefix"
        self.call("cmake", "--install", str(self.binaries.folder.parent), "--prefix", str(prefix))
        installed = {str(path.relative_to(prefix)) for path in pathlib.Path(prefix).rglob("*.h*")}
        headers = ("gradgate.h", "gradgate.hpp", "torch.hpp", "torch_reducer.hpp", "torch_sync.hpp")
        self.assertEqual(installed, {f"include/gradgate/{name}" for name in headers})


if __name__ == "__main__":
    case.main()
