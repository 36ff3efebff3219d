"""Reads gradgate.h: constants, structs, functions. Enough of C for that one file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass
class Header:
    constants: dict[str, int] = field(default_factory=dict)  # without GG_
    aliases: dict[str, str] = field(default_factory=dict)  # gg_mode: uint32_t
    structs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # (name, type); type "(*)(…)" for callbacks
    functions: dict[str, tuple[str, list[str]]] = field(default_factory=dict)  # result, types of arguments


def squeeze(text: str) -> str:
    """One spelling of a type: no const, a space before no star."""
    return re.sub(r"\s*\*", "*", " ".join(re.sub(r"\bconst\b", "", text).split())).strip()


def split_arguments(text: str) -> list[str]:
    """Types of "const char* name, uint32_t n"; empty for "void"."""
    if text.strip() in ("void", ""):
        return []
    types = []
    for argument in text.split(","):
        kept = "const char*" if re.match(r"\s*const char\s*\*", argument) else None
        types.append(kept or squeeze(re.sub(r"\w+\s*$", "", argument)))
    return types


def _fields(body: str) -> list[tuple[str, str]]:
    found = []
    for line in filter(None, (part.strip() for part in body.split(";"))):
        callback = re.fullmatch(r"(\w+)\s*\(\*(\w+)\)\s*\((.*)\)", line, re.DOTALL)
        array = re.fullmatch(r"(.*?)\s*(\w+)\[(\d+)\]", line)
        if callback:
            found.append((callback[2], f"{callback[1]}(*)({', '.join(split_arguments(callback[3]))})"))
        elif array:
            found.append((array[2], f"{squeeze(array[1])}[{array[3]}]"))
        else:
            name = re.search(r"(\w+)$", line)
            assert name, line
            kept = "const char*" if line.startswith("const char*") else squeeze(line[: name.start()])
            found.append((name[1], kept))
    return found


def parse(text: str) -> Header:
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    header = Header()
    for name, value in re.findall(r"#define GG_(\w+) (\d+)\s*$", text, re.MULTILINE):
        header.constants[name] = int(value)
    if re.search(r"#define GG_HEADROOM_UNKNOWN INT64_MAX", text):
        header.constants["HEADROOM_UNKNOWN"] = 2**63 - 1
    for body in re.findall(r"\benum \{(.*?)\}", text, re.DOTALL):
        for name, value in re.findall(r"GG_(\w+) = (\d+)", body):
            header.constants[name] = int(value)
    for target, name in re.findall(r"typedef (\w+) (gg_\w+);", text):
        header.aliases[name] = target
    for result, name, arguments in re.findall(r"typedef (\w+) \(\*(gg_\w+)\)\((.*?)\);", text, re.DOTALL):
        header.aliases[name] = f"{result}(*)({', '.join(split_arguments(arguments))})"
    for body, name in re.findall(r"typedef struct gg_\w+ \{(.*?)\} (gg_\w+);", text, re.DOTALL):
        header.structs[name] = _fields(body)
    for result, name, arguments in re.findall(r"GG_API ([\w ]+?\*?) ?(gg_\w+)\((.*?)\);", text, re.DOTALL):
        header.functions[name] = ("const char*" if "char" in result else squeeze(result), split_arguments(arguments))
    return header
