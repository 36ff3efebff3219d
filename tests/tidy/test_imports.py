import unittest

import imports
from sample import SampleTest


class ImportsTest(SampleTest):
    module = imports

    def assert_refused(self, path: str, text: str, what: str) -> None:
        self.assert_one({path: text}, f"{path}:1", what)

    def test_ctypes_in_one_file(self) -> None:
        self.assert_refused("shim/python/gradgate/ledger.py", "import ctypes\n", "outside _abi.py")
        self.assert_refused("shim/python/gradgate/ledger.py", "from ctypes import util\n", "outside _abi.py")
        self.assert_clean({"shim/python/gradgate/_abi.py": "import ctypes\n"})

    def test_adapters_see_their_contract(self) -> None:
        good = "import torch\nfrom gradgate.adapters.base import Plan\nfrom . import base\nfrom .base import Role\n"
        self.assert_clean(
            {"shim/python/gradgate/adapters/ddp.py": good, "shim/python/gradgate/sync.py": "from gradgate.ledger import Ledger\n"}
        )
        for bad in ("import gradgate.ledger\n", "from gradgate import sync\n", "from .. import sync\n", "from ..ledger import Ledger\n"):
            self.assert_refused("shim/python/gradgate/adapters/ddp.py", bad, "in an adapter")

    def test_nothing_below_sees_tests(self) -> None:
        self.assert_refused("shim/python/gradgate/sync.py", "import launch\n", "nothing below imports those")
        self.assert_refused("shim/python/gradgate/sync.py", "from examples.chars import train\n", "nothing below imports those")

    def test_examples_use_what_a_user_can(self) -> None:
        self.assert_refused("examples/chars/train.py", "from gradgate._abi import Library\n", "is private")
        self.assert_refused("examples/chars/train.py", "from gradgate import _abi\n", "is private")
        self.assert_clean({"examples/chars/train.py": "import gradgate\nfrom __future__ import annotations\n"})

    def test_what_does_not_parse(self) -> None:
        self.assert_refused("shim/python/gradgate/sync.py", "import\n", "does not parse")


if __name__ == "__main__":
    unittest.main()
