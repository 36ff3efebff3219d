import unittest

import text
from sample import SampleTest


class TextTest(SampleTest):
    module = text

    def folder(self, name: str, content: str) -> dict[str, str]:
        return {name: content, f"{name.split('/')[0]}/README.md": "What it is.\n"}

    def header(self, guard: str) -> str:
        return f"// What it is.\n\n#ifndef {guard}\n#define {guard}\n#endif  // {guard}\n"

    def test_guards(self) -> None:
        self.assert_clean(self.folder("client/cli/a_b.h", self.header("GRADGATE_CLIENT_CLI_A_B_H_")))
        self.assert_clean(self.folder("shim/include/gradgate/gradgate.hpp", self.header("GRADGATE_GRADGATE_HPP_")))

    def test_bad_guards(self) -> None:
        self.assert_one(self.folder("client/a.h", self.header("CLIENT_A_H")), "client/a.h:3", "write #ifndef GRADGATE_CLIENT_A_H_")
        self.assert_one(self.folder("client/a.h", "#pragma once\n"), "client/a.h:1", "write #ifndef GRADGATE_CLIENT_A_H_")
        self.assert_one(self.folder("client/a.h", ""), "client/a.h:1", "write #ifndef GRADGATE_CLIENT_A_H_")
        undefined = "#ifndef GRADGATE_CLIENT_A_H_\n#include <map>\n#endif\n"
        self.assert_one(self.folder("client/a.h", undefined), "client/a.h:1", "write #define GRADGATE_CLIENT_A_H_")

    def test_blanks(self) -> None:
        self.assert_one(self.folder("client/a.cc", "int a;\n\tint b;\n"), "client/a.cc:2", "use spaces")
        self.assert_one(self.folder("client/a.cc", "int a; \n"), "client/a.cc:1", "trailing blank")
        self.assert_one(self.folder("client/a.cc", "int a;"), "client/a.cc:1", "no newline at the end")

    def test_machine_paths(self) -> None:
        for top in ("work", "root"):
            self.assert_one(self.folder("client/a.md", f"see /{top}/x\n"), "client/a.md:1", "path of one machine")
        self.assert_clean(self.folder("client/a.md", "artwork/x, a/root/b, /worker/x\n"))

    def test_size(self) -> None:
        self.assert_clean(self.folder("client/a.cc", "int a;\n" * 600))
        self.assert_one(self.folder("client/a.cc", "int a;\n" * 601), "client/a.cc:601", "601 lines, more than 600")
        for lines, name in ((595, "gradgate.hpp"), (895, "gradgate.h")):
            path = f"shim/include/gradgate/{name}"
            guard = self.header(f"GRADGATE_{name.upper().replace('.', '_')}_")  # 5 lines
            self.assert_clean(self.folder(path, guard + "int a;\n" * lines))
            self.assert_one(self.folder(path, guard + "int a;\n" * (lines + 1)), f"{path}:{lines + 6}", f"more than {lines + 5}")
        self.assert_clean(self.folder("tests/a.cc", "int a;\n" * 900))
        self.assert_one(self.folder("tests/a.cc", "int a;\n" * 901), "tests/a.cc:901", "901 lines, more than 900")

    def test_readme(self) -> None:
        self.assert_one({"client/a.cc": ""}, "client/README.md:1", "missing")
        self.assert_clean({".ci/run": "true\n", "dev": "true\n"})


if __name__ == "__main__":
    unittest.main()
