#!/usr/bin/env python3
"""Measures training end to end and prints a table: PyTorch on CPU over Gloo, on two emulated nodes and on loopback.

The same as `./dev bench e2e`; needs of the build only the library, the daemon and its client.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import report  # noqa: E402
import sections  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/e2e/run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options = report.arguments(parser, [sections.PART])
    return 1 if report.run(sections.PART, options) and not options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
