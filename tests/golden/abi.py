#!/usr/bin/env python3
"""Compares the C interface with the one that is kept: what a program that was linked before relies on is still there, as it was.

abi.py           says what a change breaks, and exits 1 if it breaks anything or if something was added that is not kept yet
abi.py --accept  keeps what was added; refuses while anything is broken

Sizes and offsets follow from the types: every one of them has a fixed width, and the System V rules of alignment."""

from __future__ import annotations

import json
import pathlib
import re
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tests" / "python"))

import header as c  # noqa: E402

HEADER = ROOT / "shim/include/gradgate/gradgate.h"
EXPORTS = ROOT / "shim/capi/exports.map"
KEPT = HERE / "abi.json"
SIZES = {"char": 1, "uint8_t": 1, "int32_t": 4, "uint32_t": 4, "float": 4, "int64_t": 8, "uint64_t": 8, "size_t": 8}
Abi = dict[str, Any]


def size_of(kind: str, header: c.Header) -> tuple[int, int]:
    """Bytes and alignment."""
    kind = header.aliases.get(kind, kind)
    kind = header.aliases.get(kind, kind)
    if array := re.fullmatch(r"(.*)\[(\d+)\]", kind):
        size, alignment = size_of(array[1], header)
        return size * int(array[2]), alignment
    if kind.endswith("*") or "(*)" in kind:
        return 8, 8
    return SIZES[kind], SIZES[kind]


def layout(fields: list[tuple[str, str]], header: c.Header) -> list[list[Any]]:
    """Name, type, offset and bytes of each field."""
    found, at = [], 0
    for name, kind in fields:
        size, alignment = size_of(kind, header)
        at = -(-at // alignment) * alignment
        found.append([name, kind, at, size])
        at += size
    return found


def describe(header_text: str, exports_text: str) -> Abi:
    header = c.parse(header_text)
    symbols = {
        name: version
        for version, body in re.findall(r"^(GRADGATE_[\d.]+) \{\n(.*?)^\}", exports_text, re.MULTILINE | re.DOTALL)
        for name in re.findall(r"^\s+(gg_\w+);", body, re.MULTILINE)
    }
    return {
        "constants": header.constants,
        "types": header.aliases,
        "functions": {name: [result, *arguments] for name, (result, arguments) in header.functions.items()},
        "symbols": symbols,
        "structs": {name: layout(fields, header) for name, fields in header.structs.items()},
    }


def check_struct(name: str, before: list[list[Any]], now: list[list[Any]], found: list[str]) -> None:
    grows = before[0][0] == "struct_size"
    for index, field in enumerate(before):
        if index >= len(now) or now[index] != field:
            is_now = now[index] if index < len(now) else "gone"
            found.append(f"{name}.{field[0]}: was {field}, is {is_now}; leave it, and append fields")
            return
    if len(now) > len(before) and not grows:
        found.append(f"{name} has new fields and no struct_size, so that callers of before hand in fewer: make another struct")


def breaks(before: Abi, now: Abi) -> list[str]:
    """A line for each: what, and what to do instead. Versions of the interface may only grow."""
    found: list[str] = []
    version = ("ABI_MAJOR", "ABI_MINOR")
    for what, remedy in (
        ("constants", "numbers are compiled into callers: give it back"),
        ("types", "callers were compiled with the former: give it back"),
        ("functions", "give it back, and add another function"),
        ("symbols", "programs linked before ask for it in that version: give it back"),
    ):
        for name, value in before[what].items():
            if name not in version and now[what].get(name) != value:
                found.append(f"{what}: {name} was {value}, is {now[what].get(name, 'gone')}; {remedy}")
    for name, fields in before["structs"].items():
        if name not in now["structs"]:
            found.append(f"struct {name} is gone; give it back")
        else:
            check_struct(name, fields, now["structs"][name], found)
    was, present = ([abi["constants"][name] for name in version] for abi in (before, now))
    if present[0] != was[0] or present[1] < was[1]:
        found.append(f"the version was {was[0]}.{was[1]}, is {present[0]}.{present[1]}; the same major, and no smaller minor")
    elif added(before, now) and present == was:
        found.append(f"{', '.join(added(before, now))}: added, and the version is still {was[0]}.{was[1]}; raise GG_ABI_MINOR")
    return found


def added(before: Abi, now: Abi) -> list[str]:
    """Functions and fields: callers have to be able to ask whether they are there."""
    fields = [f"{n}.{f[0]}" for n, s in now["structs"].items() for f in s if f not in before["structs"].get(n, [])]
    return [name for name in now["functions"] if name not in before["functions"]] + fields


def as_text(abi: Abi) -> str:
    """A line for each name, so that a change can be read."""
    parts = [
        f" {json.dumps(part)}: {{\n" + ",\n".join(f"  {json.dumps(n)}: {json.dumps(v)}" for n, v in sorted(names.items())) + "\n }"
        for part, names in abi.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    now = describe(HEADER.read_text(encoding="utf-8"), EXPORTS.read_text(encoding="utf-8"))
    before = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else now
    found = breaks(before, now)
    for line in found:
        print(line)
    if not found and "--accept" in sys.argv[1:]:
        KEPT.write_text(as_text(now), encoding="utf-8")
        return 0
    if not found and (now != before or not KEPT.exists()):
        print("what was added breaks nothing, and is not kept yet: ./dev docs")
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
