"""Instructions by callgrind: the same each time, so they can be a gate where wall time tells nothing.

limits.json has what a turn of each kind of work may cost, by build type, with headroom over what it cost when the limit was
set.
"""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import re
import shutil
import subprocess

import figures
from figures import Row

LIMITS = pathlib.Path(__file__).with_name("limits.json")
HEADROOM = 1.1
FOREIGN_HEADROOM = 1.5  # another compiler than the one that the limits were taken with

# What, and the two numbers of turns whose difference is counted.
WORK = {"event": (2000, 4000), "micro": (1000, 3000), "window1": (200, 600), "window": (200, 600)}
NAMES = {
    "event": "instructions, event with the clock",
    "micro": "instructions, suppressed micro-step",
    "window1": "instructions, window of 4, world 1",
    "window": "instructions, window of 4, world 2 ²",
}
STEPS = {"128 hidden, batch 8": (128, 8), "1024 hidden, batch 32": (1024, 32)}


def count(program: pathlib.Path, *arguments: object) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program), *map(str, arguments)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return int(found[1])


def per_turn(program: pathlib.Path, what: str, few: int, many: int, *arguments: object) -> float:
    return (count(program, what, many, *arguments) - count(program, what, few, *arguments)) / (many - few)


def measure(build_dir: pathlib.Path) -> tuple[dict[str, float], dict[str, float]]:
    """Per turn of WORK, and per window of STEPS."""
    program = build_dir / "bench/bench_counts"
    if not program.exists():
        raise SystemExit(f"gate: {program} is not there: build bench_counts first")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        steps = {name: pool.submit(per_turn, program, "step", 1, 2, *size) for name, size in STEPS.items()}
        work = {what: pool.submit(per_turn, program, what, *turns) for what, turns in WORK.items()}
        return {w: f.result() for w, f in work.items()}, {n: f.result() for n, f in steps.items()}


def cache_value(build_dir: pathlib.Path, key: str) -> str:
    found = re.search(rf"^{key}:\w+=(.*)$", (build_dir / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found[1] if found else ""


def compiler(build_dir: pathlib.Path) -> str:
    """Name and major version, "GNU 12"."""
    binary = cache_value(build_dir, "CMAKE_CXX_COMPILER")
    text = subprocess.run([binary, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    version = re.search(r"(\d+)\.\d+\.\d+", text)
    return f"{'clang' if 'clang' in text else 'GNU'} {version[1] if version else '?'}"


def section(build_dir: pathlib.Path) -> list[Row]:
    if not shutil.which("valgrind"):
        return [figures.skipped("instructions", "valgrind is not installed")]
    work, steps = measure(build_dir)
    limits, _ = limits_for(build_dir)
    rows = []
    for what, value in work.items():
        limit = limits.get(what)
        if limit is None:
            rows.append(figures.told(NAMES[what], f"{value:,.0f}", value))
        else:
            rows.append(figures.at_most(NAMES[what], value, "", limit, None))
    for name, value in steps.items():
        share = 100 * work["window"] / value
        rows.append(figures.at_most(f"share of the step's, {name}", share, "%", 0.1, None))
        rows.append(figures.told(f"  instructions of the step, {name.split(',')[0]}", f"{value:,.0f}", value))
    return rows


def limits_for(build_dir: pathlib.Path) -> tuple[dict[str, float], str]:
    """The limits for this build, widened for another compiler, and a word about that."""
    stored = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    limits = stored.get(cache_value(build_dir, "CMAKE_BUILD_TYPE"), {}).get("limits", {})
    taken, here = stored.get(cache_value(build_dir, "CMAKE_BUILD_TYPE"), {}).get("compiler"), compiler(build_dir)
    if not limits or taken == here:
        return limits, ""
    wider = {what: limit / HEADROOM * FOREIGN_HEADROOM for what, limit in limits.items()}
    return wider, f"limits were taken with {taken}, this is {here}: widened to {FOREIGN_HEADROOM:g} times what it cost there"


def gate(build_dir: pathlib.Path, save: bool) -> int:
    """Fails when a kind of work costs more instructions than its limit. 77: cannot be told here."""
    if not shutil.which("valgrind"):
        print("gate: SKIPPED: valgrind is not installed")
        return 77
    work, steps = measure(build_dir)
    build_type = cache_value(build_dir, "CMAKE_BUILD_TYPE")
    if save:
        stored = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
        limits: dict[str, float] = {what: round(value * HEADROOM) for what, value in work.items()}
        stored[build_type] = {"compiler": compiler(build_dir), "limits": limits}
        LIMITS.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
    allowed, remark = limits_for(build_dir)
    if not allowed:
        print(f"gate: SKIPPED: {LIMITS.name} has no limits for build type {build_type}; --gate --save sets them")
        return 77
    if remark:
        print(f"gate: {remark}")
    exceeded = [what for what, value in work.items() if value > allowed[what]]
    for what, value in work.items():
        print(f"{NAMES[what]:45} {value:10,.0f}   limit {allowed[what]:10,.0f}   {'EXCEEDED' if what in exceeded else 'met'}")
    for name, value in steps.items():
        print(f"a window's share of the step's ({name}): {100 * work['window'] / value:.3f} %")
    if exceeded:
        print(f"gate: {', '.join(exceeded)}: more instructions than bench/{LIMITS.name} allows. Find out why (callgrind_annotate);")
        print("if it is meant, take new limits in each build type with `python3 bench/run.py --gate --save`, and say so in the commit")
    return 1 if exceeded else 0
