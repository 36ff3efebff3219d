#!/usr/bin/env python3
"""Checks that compilers do not make: layering, imports, build files, text, protos, documentation. One line per violation; exit 1 if any."""

import argparse
import pathlib
import sys

import buildfiles
import documented
import imports
import layers
import protos
import text
from tree import Tree

CHECKS = (layers, imports, buildfiles, text, protos, documented)


def check_all(tree: Tree) -> list[str]:
    return [violation for module in CHECKS for violation in module.check(tree)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2], help="of the repository")
    tree = Tree.load(parser.parse_args().root)
    violations = check_all(tree)
    for violation in violations:
        print(violation)
    print(f"tidy: {len(tree.files)} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
