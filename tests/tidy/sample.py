"""What the tests of tidy share: a check runs on a small tree given as a dictionary, and must say one thing of one line."""

import types
import unittest

from tree import Tree


class SampleTest(unittest.TestCase):
    module: types.ModuleType  # whose check() is under test

    def violations(self, files: dict[str, str]) -> list[str]:
        result: list[str] = self.module.check(Tree(files))
        return result

    def assert_clean(self, files: dict[str, str]) -> None:
        self.assertEqual(self.violations(files), [])

    def assert_one(self, files: dict[str, str], where: str, what: str) -> None:
        """Exactly one violation, at `where` (path:line), whose text has `what`."""
        found = self.violations(files)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(where + ": "), found[0])
        self.assertIn(what, found[0])
