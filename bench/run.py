#!/usr/bin/env python3
"""Measures gradgate against its budgets and prints a table; ./dev bench calls it.

Figures are compared within one run, in turn, beside the noise of the same run (A/A); where the noise is wider than what is to
be told apart the verdict is "none". --gate counts instructions instead, which are the same each time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import counts
import figures
import measure
from figures import Row

HERE = pathlib.Path(__file__).resolve().parent
BASELINE = HERE / "baseline.json"
README = HERE / "README.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

SECTIONS: dict[str, tuple[str, Callable[[measure.Context], list[Row]]]] = {
    "decision": ("Decision and event", measure.decision),
    "reducer": ("Reducer, two processes, loopback", measure.reducer),
    "torch": ("Reducer and torch", measure.torch_ddp),
    "daemon": ("Daemon", measure.daemon),
    "step": ("Step of digits, two processes, window of 4", measure.step),
    "counts": ("Instructions (callgrind)", lambda context: counts.section(context.build_dir)),
}


def machine() -> dict[str, Any]:
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {"cpu": models[0] if models else os.uname().machine, "cores": os.cpu_count(), "kernel": os.uname().release}


def same_machine(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return (a["cpu"], a["cores"]) == (b["cpu"], b["cores"])


def load_baseline(here: dict[str, Any]) -> dict[str, Any] | None:
    if not BASELINE.exists():
        return None
    baseline: dict[str, Any] = json.loads(BASELINE.read_text(encoding="utf-8"))
    if same_machine(baseline["machine"], here):
        return baseline
    there = baseline["machine"]
    print(f"bench: baseline.json is of {there['cores']} cores of {there['cpu']}, this is another machine: not compared")
    return None


def write_readme(sections: dict[str, list[Row]], heading: str) -> None:
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"bench: {README.name} has no place for results ({BEGIN} … {END})")
    README.write_text(f"{before}{BEGIN}\n{heading}\n\n{figures.markdown(sections)}\n{END}{after}", encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"sections; default: all. {', '.join(SECTIONS)}")
    parser.add_argument("--build-dir", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--quick", action="store_true", help="fewer rounds: shows that everything runs, not what it costs")
    parser.add_argument("--gate", action="store_true", help="instructions against limits.json; fails when there are more")
    parser.add_argument("--save", action="store_true", help="write baseline.json; with --gate: limits.json")
    parser.add_argument("--write-readme", action="store_true", help="put the table into bench/README.md")
    parser.add_argument("--torch-python", default=os.environ.get("GRADGATE_BENCH_PYTHON", sys.executable), help="a Python that has torch")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in SECTIONS]
    if unknown:
        parser.error(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    build_dir = arguments.build_dir.resolve()
    if arguments.gate:
        return counts.gate(build_dir, arguments.save)
    begun = time.monotonic()
    here = machine()
    baseline = load_baseline(here)
    context = measure.Context(build_dir, arguments.quick, arguments.torch_python)
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    load = os.getloadavg()[0]
    heading = f"{date}, {here['cores']} cores of {here['cpu']}, Linux {here['kernel'].split('-')[0]}, {counts.compiler(build_dir)}"
    heading += f", {counts.cache_value(build_dir, 'CMAKE_BUILD_TYPE')}; load of others when it began {load:.1f}"
    print(heading)
    sections: dict[str, list[Row]] = {}
    for name, (title, section) in SECTIONS.items():
        if arguments.names and name not in arguments.names:
            continue
        sections[title] = section(context)
        print(figures.table({title: sections[title]}, baseline), flush=True)
    finish(arguments, sections, here, date, heading)
    rows = [row for section_rows in sections.values() for row in section_rows]
    missed = [row for row in rows if row.verdict == "MISSED"]
    counted = {verdict: sum(row.verdict == verdict for row in rows) for verdict in ("met", "MISSED", "none", "skipped")}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counted.items())
    print(f"bench: {told}; {time.monotonic() - begun:.0f} s; figures in {arguments.build_dir}/bench/results.json")
    return 1 if missed and not arguments.quick else 0


def finish(arguments: argparse.Namespace, sections: dict[str, list[Row]], here: dict[str, Any], date: str, heading: str) -> None:
    rows = {row.what: row for section_rows in sections.values() for row in section_rows}
    values = {what: row.value for what, row in rows.items() if row.value is not None}
    results = {"machine": here, "date": date, "rows": values, "verdicts": {what: row.verdict for what, row in rows.items()}}
    text = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
    (arguments.build_dir / "bench/results.json").write_text(text, encoding="utf-8")
    print("\n¹ begin + end, less two events with the clock of the same run.  ² all but sending, over a transport that is done at once.")
    print("³ written out on bare Gloo: what is left is gradgate's own.")
    if arguments.save:
        baseline = {"machine": here, "date": date, "rows": values}
        BASELINE.write_text(json.dumps(baseline, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if arguments.write_readme:
        write_readme(sections, heading)


if __name__ == "__main__":
    sys.exit(main())
