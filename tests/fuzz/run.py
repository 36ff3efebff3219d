#!/usr/bin/env python3
"""Runs the fuzz targets, one after another or one alone, and reproduces what they found."""

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGETS = sorted(p.name.removesuffix("_target.cc") for p in HERE.glob("*_target.cc"))
SMOKE_SECONDS = 10
DEFAULT_SECONDS = 60
# An input that takes longer, or a process that needs more memory, is a finding.
LIMITS = ("-timeout=25", "-rss_limit_mb=2048")
# Weighing inputs by their rarest features costs more than it finds where an execution has thousands of them.
STYLE = ("-entropic=0", "-print_final_stats=1")
MAX_LENGTH = {"frames": 520, "page": 1024}


class Row:
    """What one target's run came to."""

    def __init__(self, name: str, output: str, failed: bool, seconds: float):
        self.name, self.failed, self.seconds = name, failed, seconds
        self.executions = self.number(r"stat::number_of_executed_units:\s+(\d+)", output)
        covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", output)
        self.coverage, self.features, self.corpus = (int(n) for n in covered[-1]) if covered else (0, 0, 0)
        if not self.executions:
            counted = re.findall(r"^#(\d+)\s", output, re.MULTILINE)
            self.executions = int(counted[-1]) if counted else 0
        self.artifacts = re.findall(r"Test unit written to (\S+)", output)

    @staticmethod
    def number(pattern: str, text: str) -> int:
        match = re.search(pattern, text)
        return int(match.group(1)) if match else 0

    def text(self) -> str:
        rate = self.executions / self.seconds if self.seconds > 0 else 0
        verdict = "CRASH" if self.failed else "ok"
        return (
            f"{self.name:<12} {self.executions:>12,} {rate:>10,.0f} {self.coverage:>9,} {self.features:>9,}"
            f" {self.corpus:>7,} {self.seconds:>7.0f}  {verdict}"
        )


HEADER = f"{'target':<12} {'executions':>12} {'exec/s':>10} {'coverage':>9} {'features':>9} {'corpus':>7} {'seconds':>7}"


class Fuzzer:
    def __init__(self, build_dir: pathlib.Path, name: str):
        self.build_dir, self.name = build_dir, name
        self.binary = build_dir / "fuzz" / f"fuzz_{name}"
        if not self.binary.exists():
            sys.exit(f"fuzz: {self.binary} does not exist; build it: ./dev build fuzz fuzzers")

    def command(self, seconds: int | None, runs: int | None) -> list[str]:
        grown = self.build_dir / "corpus" / self.name
        crashes = self.build_dir / "crashes"
        for folder in (grown, crashes):
            folder.mkdir(parents=True, exist_ok=True)
        command = [str(self.binary), *LIMITS, *STYLE, f"-max_len={MAX_LENGTH.get(self.name, 512)}"]
        command += [f"-artifact_prefix={crashes}/{self.name}-"]
        if runs is not None:
            command.append(f"-runs={runs}")
        if seconds is not None:
            command.append(f"-max_total_time={seconds}")
        return [*command, str(grown), str(HERE / "corpus" / self.name)]

    def fuzz(self, seconds: int | None, runs: int | None, quiet: bool) -> Row:
        command = self.command(seconds, runs)
        print("+ " + shlex.join(command), flush=True)
        log = self.build_dir / "crashes" / f"{self.name}.log"
        begun = time.monotonic()
        # Not through a pipe that somebody must empty: a log that can be looked at while it grows.
        with open(log, "w", encoding="utf-8", errors="replace") as out:
            code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, check=False).returncode
        output = log.read_text(encoding="utf-8", errors="replace")
        row = Row(self.name, output, code != 0, time.monotonic() - begun)
        if row.failed:
            print(output[-6000:])
            self.tell_how_to_reproduce(row, code)
        elif not quiet:
            print("".join(output.splitlines(keepends=True)[-12:]))
        return row

    def tell_how_to_reproduce(self, row: Row, code: int) -> None:
        print(f"fuzz: {self.name} ended with status {code}; the whole output is in {self.build_dir}/crashes/{self.name}.log")
        for artifact in row.artifacts:
            relative = os.path.relpath(artifact, ROOT)
            print(f"fuzz: reproduce with: ./dev fuzz {self.name} {relative}")
            print(f"fuzz: make it smaller with: {self.binary} -minimize_crash=1 -runs=100000 {relative}")

    def reproduce(self, file: pathlib.Path) -> int:
        command = [str(self.binary), *LIMITS, str(file)]
        print("+ " + shlex.join(command), flush=True)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        print(f"fuzz: {self.name} {'fails on' if code else 'passes'} {file}")
        return 1 if code else 0

    def make_corpus(self) -> None:
        """The committed corpus: the target's own seeds and what has been found since, without what adds no coverage."""
        seeds, kept = self.build_dir / "seeds" / self.name, HERE / "corpus" / self.name
        subprocess.run([self.binary, "--make-corpus", seeds], check=True)
        grown = self.build_dir / "corpus" / self.name
        merged = self.build_dir / "merged" / self.name
        for folder in (grown, merged, kept, self.build_dir / "crashes"):
            folder.mkdir(parents=True, exist_ok=True)
        for old in merged.iterdir():
            old.unlink()
        # The fewest inputs that reach every edge; how often they do is for the grown corpus.
        crashes = self.build_dir / "crashes"
        merge = ["-set_cover_merge=1", "-use_counters=0", f"-artifact_prefix={crashes}/{self.name}-", *LIMITS]
        subprocess.run([self.binary, *merge, merged, seeds, kept, grown], check=True, capture_output=True)
        for old in kept.iterdir():
            old.unlink()
        for file in merged.iterdir():
            (kept / file.name).write_bytes(file.read_bytes())
        size = sum(f.stat().st_size for f in kept.iterdir())
        print(f"fuzz: {self.name}: {len(list(kept.iterdir()))} inputs, {size} bytes in {os.path.relpath(kept, ROOT)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build/asan", help="of the preset asan")
    parser.add_argument("target", choices=[*TARGETS, "smoke"], help="one target, or smoke: each for 10 s")
    parser.add_argument("--seconds", type=int, help=f"how long (default {DEFAULT_SECONDS}, without --runs)")
    parser.add_argument("--runs", type=int, help="how many executions at most")
    parser.add_argument("--make-corpus", action="store_true", help="renew the committed corpus instead, minimised")
    parser.add_argument("file", nargs="?", type=pathlib.Path, help="reproduce this input instead")
    options = parser.parse_args()
    build_dir = options.build_dir.resolve()
    smoke = options.target == "smoke"
    names = TARGETS if smoke else [options.target]
    fuzzers = [Fuzzer(build_dir, name) for name in names]
    if options.make_corpus:
        for fuzzer in fuzzers:
            fuzzer.make_corpus()
        return 0
    if options.file is not None:
        if smoke:
            parser.error("a file needs the target that it is for")
        if not options.file.is_file():
            parser.error(f"{options.file} is no file")
        return fuzzers[0].reproduce(options.file.resolve())
    seconds = options.seconds
    if seconds is None and options.runs is None:
        seconds = SMOKE_SECONDS if smoke else DEFAULT_SECONDS
    begun = time.monotonic()
    rows = [fuzzer.fuzz(seconds, options.runs, quiet=smoke) for fuzzer in fuzzers]
    print(HEADER)
    for row in rows:
        print(row.text())
    failed = [row.name for row in rows if row.failed]
    verdict = f"failed: {', '.join(failed)}" if failed else f"{len(rows)} targets clean"
    print(f"fuzz: {verdict} in {time.monotonic() - begun:.0f} s; corpus, logs and crashes in {os.path.relpath(build_dir, ROOT)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
