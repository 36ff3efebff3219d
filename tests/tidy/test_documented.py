import unittest

import documented
from sample import SampleTest


class DocumentedTest(SampleTest):
    module = documented

    def test_variables(self) -> None:
        code = {"shim/link/a.cc": '\ngetenv("GRADGATE_DIR");\n'}
        self.assert_clean({**code, "deploy/reference/environment.md": "| `GRADGATE_DIR` | where the sockets are |\n"})
        for other in ({"deploy/reference/environment.md": "GRADGATE_DIRECTORY\n"}, {"README.md": "GRADGATE_DIR\n"}):
            self.assert_one({**code, **other}, "shim/link/a.cc:2", "GRADGATE_DIR is not in deploy/reference/environment.md; ./dev docs")
        self.assert_clean({"tests/a_test.cc": 'getenv("GRADGATE_ONLY_IN_TESTS");\n', "shim/a.h": "#ifndef GRADGATE_SHIM_A_H_\n"})

    def test_variables_in_python(self) -> None:
        self.assert_one({"examples/a.py": 'os.environ["GRADGATE_JOB"]\n'}, "examples/a.py:1", "GRADGATE_JOB")

    def test_flags(self) -> None:
        code = {"daemon/main/flags.cc": '\nABSL_FLAG(std::vector<std::string>, api_address,\n  {}, "…");\n'}
        self.assert_clean({**code, "deploy/reference/flags.md": "| `--api_address` | … |\n"})
        self.assert_one({**code, "deploy/reference/flags.md": "--api_address_extra\n"}, "daemon/main/flags.cc:2", "--api_address is not in")
        self.assert_one(
            {**code, "README.md": "--api_address\n"}, "daemon/main/flags.cc:2", "--api_address is not in deploy/reference/flags.md"
        )

    def test_metrics(self) -> None:
        code = {"daemon/metrics/families.cc": '"gradgate_windows_total"\n'}
        self.assert_clean({**code, "deploy/reference/metrics.md": "| `gradgate_windows_total` |\n"})
        self.assert_one({**code, "deploy/reference/metrics.md": ""}, "daemon/metrics/families.cc:1", "gradgate_windows_total is not in")

    def test_what_security_says_is_tested(self) -> None:
        tests = {
            "tests/a_test.cc": "TEST_F(Door, IsShut) {}\nTEST(Key, Fits) {}\n",
            "tests/test_b.py": "class LockTest(Case):\n    def test_it(self):\n",
        }
        self.assert_clean({**tests, "SECURITY.md": "`Door.IsShut`, `Key.Fits`, `LockTest.test_it`, `SECURITY.md`, `v1.Door`\n"})
        self.assert_one({**tests, "SECURITY.md": "\n`Door.IsShut`, `Door.IsOpen`\n"}, "SECURITY.md:2", "no test Door.IsOpen")
        self.assert_one({**tests, "SECURITY.md": "`LockTest.test_other`\n"}, "SECURITY.md:1", "no test LockTest.test_other")


if __name__ == "__main__":
    unittest.main()
