#!/usr/bin/env python3
"""Measures gradgate against its budgets and prints a table; ./dev bench calls it.

Figures are compared within one run, in turn, beside the noise of the same run (A/A); where the noise is wider than what is to
be told apart the verdict is "none". --gate counts instructions instead, which are the same each time.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import counts
import measure
import report

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "e2e"))
import sections as e2e  # noqa: E402

MICRO = report.Part(
    "micro",
    {
        "decision": ("Decision and event", measure.decision),
        "reducer": ("Reducer, two processes, loopback", measure.reducer),
        "torch": ("Reducer and torch", measure.torch_ddp),
        "daemon": ("Daemon", measure.daemon),
        "step": ("Step of digits, two processes, window of 4", measure.step),
        "ballot": ("Ballot, window of 4", measure.ballot),
        "counts": ("Instructions (callgrind)", lambda context: counts.section(context.build_dir)),
    },
    pathlib.Path(__file__).resolve().parent,
    (
        "¹ begin + end, less two events with the clock of the same run.  ² all but sending, over a transport that is done at once.",
        "³ written out on bare Gloo: what is left is gradgate's own.",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gate", action="store_true", help="instructions against limits.json; fails when there are more")
    options = report.arguments(parser, [MICRO, e2e.PART])
    if options.gate:
        return counts.gate(options.build_dir.resolve(), options.save)
    missed = report.run(MICRO, options) + report.run(e2e.PART, options)
    return 1 if missed and not options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
