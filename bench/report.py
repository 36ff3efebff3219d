"""Runs the sections of a bench, prints their table, and keeps the figures: results, baseline, README.

A bench is a folder with a README of its own, whose results stand between two marks. All benches share one baseline, which is of
one machine; another machine's figures are not compared with it.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import counts
import figures
from figures import Row
from measure import Context

HERE = pathlib.Path(__file__).resolve().parent
BASELINE = HERE / "baseline.json"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


@dataclasses.dataclass(frozen=True)
class Part:
    """A bench: `sections` are {name: (title, what measures it)}, `notes` explain marks in the table."""

    name: str
    sections: Mapping[str, tuple[str, Callable[[Context], list[Row]]]]
    folder: pathlib.Path
    notes: Sequence[str] = ()

    @property
    def readme(self) -> pathlib.Path:
        return self.folder / "README.md"


def arguments(parser: argparse.ArgumentParser, parts: Sequence[Part]) -> argparse.Namespace:
    """The options that all benches have, parsed; `names` may be those of parts and of sections."""
    known = [name for part in parts for name in (*part.sections, part.name)]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all. {', '.join(known)}")
    parser.add_argument("--build-dir", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--quick", action="store_true", help="fewer rounds: shows that everything runs, not what it costs")
    parser.add_argument("--save", action="store_true", help="write baseline.json; with --gate: limits.json")
    parser.add_argument("--write-readme", action="store_true", help="put the table into the bench's README.md")
    parser.add_argument("--torch-python", default=torch_python(), help="a Python that has torch")
    parsed = parser.parse_args()
    unknown = [name for name in parsed.names if name not in known]
    if unknown:
        parser.error(f"no section is called {', '.join(unknown)}; there are {', '.join(known)}")
    return parsed


def torch_python() -> str:
    venv = HERE.parent / ".venv/bin/python"
    return os.environ.get("GRADGATE_BENCH_PYTHON") or (str(venv) if venv.exists() else sys.executable)


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


def heading(build_dir: pathlib.Path, here: dict[str, Any]) -> str:
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    text = f"{date}, {here['cores']} cores of {here['cpu']}, Linux {here['kernel'].split('-')[0]}, {counts.compiler(build_dir)}"
    return f"{text}, {counts.cache_value(build_dir, 'CMAKE_BUILD_TYPE')}; load of others when it began {os.getloadavg()[0]:.1f}"


def run(part: Part, options: argparse.Namespace) -> int:
    """Measures the part's sections that are wanted; returns how many budgets were missed."""
    wanted = [n for n in part.sections if not options.names or n in options.names or part.name in options.names]
    if not wanted:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what a section has made is removed
    begun = time.monotonic()
    here = machine()
    baseline = load_baseline(here)
    context = Context(options.build_dir.resolve(), options.quick, options.torch_python)
    head = heading(context.build_dir, here)
    print(head)
    sections: dict[str, list[Row]] = {}
    for name in wanted:
        title, section = part.sections[name]
        sections[title] = section(context)
        print(figures.table({title: sections[title]}, baseline), flush=True)
    print("\n" + "\n".join(part.notes))
    rows = {row.what: row for section_rows in sections.values() for row in section_rows}
    results = context.build_dir / "bench" / f"{part.name}.json"
    keep(rows, here, results, BASELINE if options.save else None)
    if options.write_readme:
        write_readme(part.readme, sections, head)
    verdicts = [row.verdict for row in rows.values()]
    told = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("met", "MISSED", "none", "skipped"))
    print(f"bench: {part.name}: {told}; {time.monotonic() - begun:.0f} s; figures in {results}")
    return verdicts.count("MISSED")


def keep(rows: dict[str, Row], here: dict[str, Any], results: pathlib.Path, baseline: pathlib.Path | None) -> None:
    """The baseline keeps what this run did not measure, if it is of this machine."""
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    values = {what: row.value for what, row in rows.items() if row.value is not None}
    verdicts = {what: row.verdict for what, row in rows.items()}
    results.parent.mkdir(parents=True, exist_ok=True)
    write_json(results, {"machine": here, "date": date, "rows": values, "verdicts": verdicts})
    if baseline:
        before = json.loads(baseline.read_text(encoding="utf-8")) if baseline.exists() else None
        kept = before["rows"] if before and same_machine(before["machine"], here) else {}
        write_json(baseline, {"machine": here, "date": date, "rows": {**kept, **values}})


def write_json(path: pathlib.Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_readme(readme: pathlib.Path, sections: dict[str, list[Row]], head: str) -> None:
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"bench: {readme} has no place for results ({BEGIN} … {END})")
    readme.write_text(f"{before}{BEGIN}\n{head}\n\n{figures.markdown(sections)}\n{END}{after}", encoding="utf-8")
