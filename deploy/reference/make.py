#!/usr/bin/env python3
"""Writes what the source and the built programs say into the tables of deploy/reference: names, types, defaults, meanings.

A table stands between <!-- table: NAME --> and <!-- end -->. Columns that the source does not have, as what to do about a code, are kept
as they are, by the name in the first column; for a new name they have to be written. --check writes nothing, and says what is wrong."""

from __future__ import annotations

import argparse
import pathlib
import re
import sys
from collections.abc import Callable

import from_programs
import from_source

HERE = pathlib.Path(__file__).resolve().parent
BLOCK = re.compile(r"(<!-- table: ([\w ]+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
MAY_BE_EMPTY = ("default",)
Row = list[str | None]  # None: kept
Table = tuple[list[str], list[Row]]


def code(name: str) -> str:
    return f"`{name}`"


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


class Reference:
    def __init__(self, build: pathlib.Path) -> None:
        self.build = build
        self.problems: list[str] = []

    def metrics(self) -> Table:
        """Those that a daemon serves only in some circumstances keep the labels that they are given by hand."""
        served, declared = from_programs.labels(self.build), from_source.metrics()
        rows: list[Row] = []
        for name, (kind, text, labels) in served.items():
            rows.append([code(name), kind, ", ".join(labels), cell(text)])
            if name in declared and declared[name] != (kind, text):
                self.problems.append(f"{name}: served as {kind}, {text!r}; the source says {declared[name]}")
        for name in sorted(from_source.metric_names() - set(served)):
            kind, text = declared.get(name, ("", ""))
            rows.append([code(name), kind or None, None, cell(text) or None])
        return ["metric", "type", "labels", "meaning"], rows

    def gradgated(self) -> Table:
        flags = from_programs.daemon_flags(self.build / "bin" / "gradgated")
        return ["flag", "default", "meaning"], [[code(flag), code(default) if default else "", cell(text)] for flag, default, text in flags]

    def gradgatectl(self) -> Table:
        program = self.build / "bin" / "gradgatectl"
        rows: list[Row] = []
        for command in ["", *from_programs.commands(program)]:
            about, options = from_programs.options(program, *command.split())
            rows.append([f"**{f'gradgatectl {command}'.strip()}**", "", cell(about)])
            rows += [[code(name), code(default) if default else "", cell(text)] for name, default, text in options]
        return ["command, option", "default", "meaning"], rows

    def gradgate(self) -> Table:
        rows: list[Row] = []
        for command, (about, options) in from_programs.python_commands().items():
            rows.append([f"**gradgate {command}**", "", cell(about)])
            rows += [[code(name), code(default) if default else "", cell(text)] for name, default, text in options]
        return ["command, option", "default", "meaning"], rows

    def variables(self, mine: Callable[[str, list[str]], bool], *kept: str) -> Table:
        rows: list[Row] = [
            [code(n), ", ".join(where), *[None] * len(kept)] for n, where in from_source.variables().items() if mine(n, where)
        ]
        return ["variable", "read by", *kept], rows

    def codes(self, found: dict[str, str]) -> Table:
        """Where the source has no comment, the meaning is kept, too."""
        return ["code", "meaning", "what to do"], [[code(name), cell(text) or None, None] for name, text in found.items()]

    def exceptions(self) -> Table:
        return ["exception", "status", "meaning", "what to do"], [
            [code(name), code(status) if status else "", cell(text), None] for name, (status, text) in from_source.exceptions().items()
        ]

    def tables(self) -> dict[str, Callable[[], Table]]:
        def testing(_: str, where: list[str]) -> bool:
            return set(where) <= set(from_source.LEAVES)

        def ours(name: str, where: list[str]) -> bool:
            return name.startswith("GRADGATE") and not testing(name, where)

        return {
            "metrics": self.metrics,
            "gradgated": self.gradgated,
            "gradgatectl": self.gradgatectl,
            "gradgate": self.gradgate,
            "variables": lambda: self.variables(ours, "default", "effect"),
            "variables of others": lambda: self.variables(lambda n, w: not ours(n, w) and not testing(n, w), "whose", "effect"),
            "variables for tests": lambda: self.variables(testing, "effect"),
            "statuses": lambda: self.codes(from_source.statuses()),
            "exceptions": self.exceptions,
            "reasons": lambda: self.codes(dict.fromkeys(sorted(from_source.reasons()), "")),
            "policy rejections": lambda: self.codes(from_source.proto_enum("proto/gradgate/v1/policy.proto", "PolicyRejection")),
            "verdicts": lambda: self.codes(from_source.proto_enum("proto/gradgate/v1/diagnosis.proto", "VerdictKind")),
            "rejections": lambda: self.codes(from_source.cpp_enum("daemon/node/rejection.h", "Rejection")),
        }

    def text(self, name: str, titles: list[str], rows: list[Row], former: str) -> str:
        lines = [
            [c.strip() for c in re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))]
            for line in former.splitlines()
            if line.startswith("| ")
        ]
        kept = {line[0]: dict(zip(lines[0], line, strict=False)) for line in lines}
        out = ["| " + " | ".join(titles) + " |", "| " + " | ".join("---" for _ in titles) + " |"]
        for row in rows:
            cells = []
            for title, value in zip(titles, row, strict=True):
                old = kept.get(row[0] or "", {}).get(title, "")
                if value is None and not old and title not in MAY_BE_EMPTY:
                    self.problems.append(f"{name}: {row[0]} has no '{title}'; write it into the table")
                cells.append(old if value is None else value)
            out.append("| " + " | ".join(cells) + " |")
        return "\n".join(out).replace("|  |", "| |") + "\n"

    def page(self, former: str) -> str:
        makers = self.tables()

        def table(match: re.Match[str]) -> str:
            titles, rows = makers[match[2]]()
            return match[1] + "\n" + self.text(match[2], titles, rows, match[3]) + "\n" + match[4]

        return BLOCK.sub(table, former)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    reference = Reference(options.build_dir)
    pages = sorted(HERE.glob("*.md"))
    missing = set(reference.tables()) - {name for path in pages for _, name, _, _ in BLOCK.findall(path.read_text(encoding="utf-8"))}
    reference.problems += [f"table {name} is on no page" for name in sorted(missing)]
    for path in pages:
        former = path.read_text(encoding="utf-8")
        present = reference.page(former)
        if present == former:
            continue
        if options.check:
            reference.problems.append(f"{path.name} is not what the source says; ./dev docs writes it")
        else:
            path.write_text(present, encoding="utf-8")
            print(f"{path.relative_to(from_source.ROOT)}: written")
    for problem in reference.problems:
        print(problem, file=sys.stderr)
    return 1 if reference.problems else 0


if __name__ == "__main__":
    sys.exit(main())
