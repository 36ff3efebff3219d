import unittest

import buildfiles
from sample import SampleTest


class BuildFilesTest(SampleTest):
    module = buildfiles

    def test_named_sources_and_tests(self) -> None:
        self.assert_clean({"shim/core/CMakeLists.txt": "gg_library(NAME gg_core\n  SRCS engine.cc)\n", "shim/core/engine.cc": ""})
        self.assert_clean(
            {"daemon/CMakeLists.txt": "gg_library(NAME x SRCS node/a.cc;node/b.cc)\n", "daemon/node/a.cc": "", "daemon/node/b.cc": ""}
        )
        self.assert_clean(
            {"tests/x/CMakeLists.txt": "add_test(NAME x COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/test_x.py)\n", "tests/x/test_x.py": ""}
        )
        self.assert_clean({"tests/CMakeLists.txt": "gg_test(NAME x SRCS ${PROJECT_SOURCE_DIR}/bench/x.cc)\n", "bench/x.cc": ""})

    def test_unbuilt_source(self) -> None:
        self.assert_one(
            {"shim/core/CMakeLists.txt": "SRCS other_engine.cc", "shim/core/engine.cc": ""}, "shim/core/engine.cc:1", "nothing builds it"
        )

    def test_source_named_in_a_comment_only(self) -> None:
        self.assert_one({"client/CMakeLists.txt": "# a.cc\n", "client/a.cc": ""}, "client/a.cc:1", "nothing builds it")

    def test_source_named_in_another_folder_only(self) -> None:
        self.assert_one({"client/cli/CMakeLists.txt": "a.cc\n", "client/a.cc": ""}, "client/a.cc:1", "nothing builds it")

    def test_unbuilt_test(self) -> None:
        self.assert_one(
            {"tests/shim/CMakeLists.txt": "", "tests/shim/core/a_test.cc": ""}, "tests/shim/core/a_test.cc:1", "nothing builds it"
        )

    def test_unregistered_python_test(self) -> None:
        self.assert_one(
            {"tests/system/CMakeLists.txt": "", "tests/system/test_demo.py": ""}, "tests/system/test_demo.py:1", "ctest never runs it"
        )
        self.assert_clean({"tests/system/CMakeLists.txt": "", "tests/system/harness.py": ""})

    def test_globs(self) -> None:
        for line in ("file(GLOB sources *.cc)", "FILE ( glob_recurse x *.h )", "aux_source_directory(. x)"):
            self.assert_one({"client/CMakeLists.txt": f"\n{line}\n"}, "client/CMakeLists.txt:2", "list them by name")
        self.assert_clean({"client/CMakeLists.txt": "# no file(GLOB here\nfile(READ a b)\n"})


if __name__ == "__main__":
    unittest.main()
