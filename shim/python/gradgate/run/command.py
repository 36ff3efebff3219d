"""`gradgate run`, `explain` and `trial`: become the given command, which finds gradgate inside its Python processes."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import explain, trial

INJECT = Path(__file__).with_name("inject")
PACKAGES = Path(__file__).parents[2]

_RUN = """\
examples:
  gradgate run -- torchrun --nproc-per-node 4 train.py --epochs 3      how many reductions each optimizer step costs; nothing changes
  gradgate run --enforce -- python train.py                            reduced once, at the step
The report comes on standard error of rank 0 when the script ends; exit code, signals, output and arguments are the script's own.
"""
_EXPLAIN = """\
examples:
  gradgate explain -- torchrun --nproc-per-node 4 train.py            wrappers, groups, when flags are read, what is in force and why
  gradgate run --report r.json -- torchrun … ; gradgate explain r.json
"""
_TRIAL = """\
examples:
  gradgate trial -- torchrun --nproc-per-node 4 train.py              every_micro_step, as it is written, against window
  gradgate trial --windows 50 --policies window_replica,window -- torchrun …
The result comes on standard error of rank 0 as soon as all windows are run. Gradients are the same sums under each policy.
"""
_EPILOGS = {"run": _RUN, "explain": _EXPLAIN, "trial": _TRIAL}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gradgate", formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, what: str, description: str) -> argparse.ArgumentParser:
        one = commands.add_parser(
            name, help=what, description=description, epilog=_EPILOGS[name], formatter_class=argparse.RawDescriptionHelpFormatter
        )
        one.set_defaults(how="audit", windows=0, policies="", mode="auto")
        return one

    run = add("run", "run a training script under gradgate without changing it", "Runs a training command without a change to the script.")
    explain = add(
        "explain",
        "what gradgate finds in a script's run, what is in force and why",
        "Runs a training command as gradgate run does, and tells after its first window what was found; or shows that of a report.",
    )
    trial = add(
        "trial",
        "measure what another policy would save, on the running script",
        "Runs a training command under two policies, a window each in turn, tells which is faster, and leaves the script as it was.",
    )
    for one in (run, explain):
        how = one.add_mutually_exclusive_group()
        how.add_argument("--audit", dest="how", action="store_const", const="audit", help="count and report, change nothing (default)")
        how.add_argument("--enforce", dest="how", action="store_const", const="enforce", help="suppress reductions until the step")
        one.add_argument(
            "--mode",
            choices=("auto", "window", "window_replica"),
            help="for --enforce: auto (default) begins with the least memory, window defers all of FSDP's gradients, unsharded",
        )
    trial.add_argument("--windows", type=int, default=20, help="of each policy (default 20)")
    policies = "every_micro_step: as the script is written (default %(default)s)"
    trial.add_argument("--policies", default="every_micro_step,window", metavar="A,B", help=policies)
    for one in (run, explain, trial):
        one.add_argument("--report", metavar="FILE", help="also write the report of rank 0 as JSON to FILE")
        one.add_argument("--job", metavar="NAME", help="the job's name for the daemon (GRADGATE_JOB)")
        one.add_argument(
            "training", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="torchrun, python, accelerate, … with its arguments"
        )
    return parser


def environment(
    before: Mapping[str, str], how: str, mode: str, report: str | None, job: str | None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    env = {name: value for name, value in before.items() if name not in (explain.VARIABLE, trial.VARIABLE)}
    env["PYTHONPATH"] = os.pathsep.join([str(INJECT), *filter(None, [before.get("PYTHONPATH")])])
    env["GRADGATE_RUN_PATH"] = str(PACKAGES)
    env["GRADGATE"] = how
    env["GRADGATE_RUN_MODE"] = mode
    if report is not None:
        env["GRADGATE_RUN_REPORT"] = os.path.abspath(report)
    if job is not None:
        env["GRADGATE_JOB"] = job
    return {**env, **(more or {})}


def _show(path: Path) -> int:
    """What an earlier run's report tells of what was found."""
    try:
        told = json.loads(path.read_text())
        lines = [line for figures in told["observed"] if figures["explain"] for line in explain.page(figures)]
        lines += [f"gradgate: left alone: {why}" for why in told["left_alone"]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        text = error if isinstance(error, OSError) else f"{path}: not a report that gradgate run --report has written"
        print(f"gradgate explain: {text}", file=sys.stderr)
        return 1
    for line in lines or ["gradgate: no window of any model ended in that run"]:
        print("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line))
    return 0


def _checked_report(parser: argparse.ArgumentParser, name: str, given: str) -> None:
    report = Path(given).resolve()
    if report.is_dir():
        parser.error(f"{name}: --report {given}: this is a folder; give a file")
    if not report.parent.is_dir():
        parser.error(f"{name}: --report {given}: there is no folder {report.parent}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's exit code where it does not become the command: 2 for wrong usage, 127 for a command that is not there."""
    parser = _parser()
    options = parser.parse_args(arguments)
    name, command = options.command, options.training
    if name == "explain" and command and command[0].endswith(".json"):
        if len(command) > 1:
            parser.error(f"explain: one report at a time; after {command[0]} there is {command[1]!r}")
        return _show(Path(command[0]))
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        shape = "[--windows N] [--policies A,B]" if name == "trial" else "[--audit|--enforce]"
        parser.error(f"{name}: no command: gradgate {name} {shape} -- torchrun … train.py")
    if command[0].startswith("-"):
        parser.error(f"{name}: unknown option {command[0]!r}; options of gradgate come before --, the command after it")
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    if shutil.which(command[0]) is None:
        print(f"gradgate {name}: {command[0]}: not found; give a program, as torchrun or python", file=sys.stderr)
        return 127
    if options.report is not None:
        _checked_report(parser, name, options.report)
    how, mode, more = options.how, options.mode, dict[str, str]()
    if mode != "auto" and how != "enforce":
        parser.error(f"{name}: --mode {mode} is for --enforce; --audit changes nothing")
    if name == "explain":
        more[explain.VARIABLE] = "1"
    if name == "trial":
        try:
            more[trial.VARIABLE] = trial.start(options.windows, options.policies)
        except ValueError as error:
            parser.error(f"trial: {error}")
        how, mode = "enforce", "window"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], command, environment(os.environ, how, mode, options.report, options.job, more))
    raise AssertionError("execvpe returned")
