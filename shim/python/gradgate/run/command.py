"""`gradgate run`: becomes the given command, which finds gradgate inside its Python processes."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

INJECT = Path(__file__).with_name("inject")
PACKAGES = Path(__file__).parents[2]

_EPILOG = """\
examples:
  gradgate run -- torchrun --nproc-per-node 4 train.py --epochs 3      how many reductions each optimizer step costs; nothing changes
  gradgate run --enforce -- python train.py                            reduced once, at the step
The report comes on standard error of rank 0 when the script ends; exit code, signals, output and arguments are the script's own.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gradgate", formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run",
        help="run a training script under gradgate without changing it",
        description="Runs a training command under gradgate without a change to the script.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    how = run.add_mutually_exclusive_group()
    how.add_argument("--audit", dest="how", action="store_const", const="audit", help="count and report, change nothing (default)")
    how.add_argument("--enforce", dest="how", action="store_const", const="enforce", help="suppress reductions until the optimizer steps")
    run.add_argument(
        "--mode",
        choices=("auto", "window", "window_replica"),
        default="auto",
        help="for --enforce: auto (default) begins with the least memory, window defers all of FSDP's gradients, unsharded",
    )
    run.add_argument("--report", metavar="FILE", help="also write the report of rank 0 as JSON to FILE")
    run.add_argument("--job", metavar="NAME", help="the job's name for the daemon (GRADGATE_JOB)")
    run.add_argument(
        "training", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="torchrun, python, accelerate, … with its arguments"
    )
    run.set_defaults(how="audit")
    return parser


def environment(before: Mapping[str, str], how: str, mode: str, report: str | None, job: str | None) -> dict[str, str]:
    env = dict(before)
    env["PYTHONPATH"] = os.pathsep.join([str(INJECT), *filter(None, [before.get("PYTHONPATH")])])
    env["GRADGATE_RUN_PATH"] = str(PACKAGES)
    env["GRADGATE"] = how
    env["GRADGATE_RUN_MODE"] = mode
    if report is not None:
        env["GRADGATE_RUN_REPORT"] = os.path.abspath(report)
    if job is not None:
        env["GRADGATE_JOB"] = job
    return env


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's exit code where it does not become the command: 2 for wrong usage, 127 for a command that is not there."""
    parser = _parser()
    options = parser.parse_args(arguments)
    command = options.training[1:] if options.training[:1] == ["--"] else options.training
    if not command:
        parser.error("run: no command: gradgate run [--audit|--enforce] -- torchrun … train.py")
    if command[0].startswith("-"):
        parser.error(f"run: unknown option {command[0]!r}; options of gradgate come before --, the command after it")
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    if shutil.which(command[0]) is None:
        print(f"gradgate run: {command[0]}: not found; give a program, as torchrun or python", file=sys.stderr)
        return 127
    if options.report is not None:
        report = Path(options.report).resolve()
        if report.is_dir():
            parser.error(f"run: --report {options.report}: this is a folder; give a file")
        if not report.parent.is_dir():
            parser.error(f"run: --report {options.report}: there is no folder {report.parent}")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], command, environment(os.environ, options.how, options.mode, options.report, options.job))
    raise AssertionError("execvpe returned")
