"""What the built programs say of themselves: flags, options, the labels of their metrics."""

from __future__ import annotations

import argparse
import importlib
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples" / "demo"))

import processes  # noqa: E402

SECONDS = 60


def says(*command: str | pathlib.Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=SECONDS, check=True)
    return done.stdout


def daemon_flags(program: pathlib.Path) -> list[tuple[str, str, str]]:
    """Flag, default, meaning."""
    items = re.findall(r"^  (--\w+)(?:  \(default: (.*?)\))?\n((?:      .*\n)+)", says(program, "--help"), re.MULTILINE)
    return [(flag, "" if default == "empty" else default, " ".join(text.split())) for flag, default, text in items]


def commands(program: pathlib.Path) -> list[str]:
    """Each command with words of its own: "policy set"."""
    script = says(program, "completion", "bash")
    return re.findall(r"^    '([a-z]+[ a-z]*)'\) words=", script, re.MULTILINE)


def options(program: pathlib.Path, *command: str) -> tuple[str, list[tuple[str, str, str]]]:
    """What a command is for, and its options and operands: name with its value's kind, default, meaning."""
    text = says(program, *command, "--help")
    about = " ".join(text.split("\nUsage:")[0].split())
    items: list[tuple[str, str, str]] = []
    heading = ""
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][A-Za-z ]*:", line):
            heading = line
        elif heading not in ("Options:", "Positionals:") or not line.startswith("  "):
            continue
        elif line[2] != " ":
            name, _, meaning = line.strip().partition("  ")
            name, _, default = name.partition("=") if not name.endswith("]") else (name, "", "")
            items.append((name, default, meaning.strip()))
        else:
            name, default, meaning = items.pop()
            items.append((name, default, f"{meaning} {line.strip()}".strip()))
    return about, [item for item in items if not item[0].startswith("-h,")]


def python_parser() -> argparse.ArgumentParser:
    """Of `gradgate run` and its like; needs neither torch nor the library."""
    sys.path.insert(0, str(ROOT / "shim" / "python"))
    parser: argparse.ArgumentParser = importlib.import_module("gradgate.run.command")._parser()
    return parser


def python_commands() -> dict[str, tuple[str, list[tuple[str, str, str]]]]:
    """What each is for, and its options, as `options` has them."""
    actions = python_parser()._actions
    commands = next(action for action in actions if isinstance(action, argparse._SubParsersAction))
    found = {}
    for name, command in commands.choices.items():
        items = []
        for action in command._actions:
            if action.dest == "help":
                continue
            value = action.metavar or ("{" + ",".join(action.choices) + "}" if action.choices else "" if action.nargs == 0 else "N")
            shown = f"{action.option_strings[-1]} {value}".strip() if action.option_strings else str(value)
            default = str(action.default) if action.option_strings and action.default and action.nargs != 0 else ""
            items.append((shown, default, (action.help or "") % {"default": action.default}))
        found[name] = ((command.description or "").strip(), items)
    return found


def labels(build: pathlib.Path) -> dict[str, tuple[str, str, list[str]]]:
    """What a daemon with a job of two ranks serves: of each metric its type, help and labels."""
    binaries = processes.Binaries(build, "digits")
    # The end of an epoch is a partial window, so that each kind is there; and it lasts while it is looked at.
    options = ("--ranks", "2", "--epochs", "1000", "--job", "reference", "--quiet")
    with (
        tempfile.TemporaryDirectory(prefix="gg-reference-") as folder,
        processes.Daemon(binaries, folder) as daemon,
        processes.trainer(binaries, *options, env={"GRADGATE_DIR": folder}),
    ):

        def served() -> str | None:
            text = daemon.scrape()
            return text if "gradgate_collective_duration_seconds_bucket{" in text else None

        return parse(processes.wait_for("metrics of a trainer", served))


def parse(text: str) -> dict[str, tuple[str, str, list[str]]]:
    """Of Prometheus' text format."""
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    found = {}
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        if not name.startswith("gradgate_"):
            continue
        series = re.findall(rf"^{name}(?:_bucket)?\{{(.*)\}} ", text, re.MULTILINE)
        names = [label for one in series[:1] for label in re.findall(r'(\w+)="', one) if label != "le"]
        found[name] = (kind, helps.get(name, ""), names)
    return found
