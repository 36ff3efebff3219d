#!/usr/bin/env python3
"""What ./dev lint runs: clang-format, tidy, shellcheck, ruff, mypy, clang-tidy."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

from tree import changed_files, list_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMAT_MAJOR = "14"  # releases format differently; this one decides
WITH_TORCH = ("shim/python/", "tests/python/", "tests/torch/", "examples/chars/")  # one run of mypy: torch's types are read once
COMMANDS = "build/debug/compile_commands.json"


class Lint:
    def __init__(self, fix: bool, everything: bool, dry: bool):
        self.fix, self.everything, self.dry = fix, everything, dry
        self.files = [f for f in list_files(ROOT) if (ROOT / f).is_file()]
        self.failed: list[str] = []

    def select(self, *suffixes: str) -> list[str]:
        return [f for f in self.files if f.endswith(suffixes)]

    def run(self, what: str, command: list[str], files: list[str]) -> None:
        """One process over all files."""
        shown = files if len(files) < 4 else [files[0], f"… {len(files)} files"]
        print("+ " + shlex.join(command) + " " + " ".join(shown), flush=True)
        if not self.dry and subprocess.run([*command, *files], cwd=ROOT, check=False).returncode != 0:
            self.failed.append(what)

    def clang_format(self) -> None:
        binary = next((b for b in (f"clang-format-{FORMAT_MAJOR}", "clang-format") if shutil.which(b)), None)
        version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout if binary else "none"
        if binary is None or f"version {FORMAT_MAJOR}." not in version:
            print(f"lint: format NOT checked: it is defined by clang-format {FORMAT_MAJOR}, and here is {version.strip()}")
            return
        mode = ["-i"] if self.fix else ["--dry-run", "--Werror"]
        self.run("clang-format", [binary, *mode], self.select(".cc", ".h", ".hpp", ".c"))

    def python(self) -> None:
        if self.fix:
            self.run("ruff format", [".venv/bin/ruff", "format", "--quiet"], self.select(".py"))
        self.run("ruff", [".venv/bin/ruff", "check", "--quiet", *(["--fix"] if self.fix else [])], self.select(".py"))
        runs: dict[str, list[str]] = {}
        for name in self.select(".py"):
            folder = "torch" if name.startswith(WITH_TORCH) else os.path.dirname(name)
            runs.setdefault(folder, []).append(name)
        for folder, names in sorted(runs.items()):
            self.run(f"mypy {folder}", [".venv/bin/mypy", "--no-error-summary"], names)

    def clang_tidy(self) -> None:
        """The units that ship and that the debug build compiles: those that changed, or all. Tests would double the time."""
        commands = ROOT / COMMANDS
        if not commands.exists():
            print(f"lint: clang-tidy NOT run: {COMMANDS} is missing; ./dev build makes it")
            return
        compiled = {os.path.relpath(c["file"], ROOT) for c in json.loads(commands.read_text(encoding="utf-8"))}
        units = [f for f in self.select(".cc") if f in compiled and not f.startswith(("tests/", "bench/"))]
        changed = None if self.everything else changed_files(ROOT)
        units = units if changed is None else [u for u in units if u in changed]
        print(f"+ clang-tidy --quiet -p build/debug FILE   ({len(units)} files, {os.cpu_count()} at a time)", flush=True)
        if self.dry:
            return
        begun = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            clean = list(pool.map(self.clang_tidy_one, units))
        print(f"lint: clang-tidy took {time.monotonic() - begun:.0f} s")
        if not all(clean):
            self.failed.append("clang-tidy")

    @staticmethod
    def clang_tidy_one(unit: str) -> bool:
        command = ["clang-tidy", "--quiet", "-p", "build/debug", unit]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0 or "warning:" in done.stdout or "error:" in done.stdout:
            print(done.stdout + (done.stderr if not done.stdout else ""), flush=True)
            return False
        return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev lint", description=__doc__)
    parser.add_argument("--fix", action="store_true", help="rewrite what can be: format, ruff's fixes")
    parser.add_argument("--all", action="store_true", help="clang-tidy on every file, not on changed ones alone")
    parser.add_argument("-n", dest="dry", action="store_true", help="print the commands, run nothing")
    options = parser.parse_args()
    lint = Lint(options.fix, options.all, options.dry)
    lint.clang_format()
    lint.run("tidy", ["python3", "tests/tidy/tidy.py"], [])
    lint.run("shellcheck", ["shellcheck"], ["dev", ".ci/run", *lint.select("postinst", "postrm", "prerm", ".sh")])
    lint.python()
    lint.clang_tidy()
    if lint.failed:
        print(f"lint: failed: {', '.join(lint.failed)}", file=sys.stderr)
    return 1 if lint.failed else 0


if __name__ == "__main__":
    sys.exit(main())
