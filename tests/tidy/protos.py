"""Lint of our .proto files: everything has a comment, enums have a prefix and an unspecified zero, rpc messages are their own."""

import re

from tree import Tree

BLOCK = re.compile(r"(message|enum|service|oneof)\s+(\w+)\s*\{")
RPC = re.compile(r"rpc\s+(\w+)\s*\(\s*(?:stream\s+)?([\w.]+)\s*\)\s*returns\s*\(\s*(?:stream\s+)?([\w.]+)\s*\)")
VALUE = re.compile(r"(\w+)\s*=\s*(-?\w+)\s*[;\[]")
FIELD = re.compile(r"(?:repeated\s+|optional\s+)?(?:map\s*<[^>]*>|[\w.]+)\s+(\w+)\s*=\s*\d+\s*[;\[]")


def upper_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


def check_value(enum: str, name: str, number: str, is_first: bool) -> list[str]:
    prefix = upper_snake(enum) + "_"
    found = []
    if not name.startswith(prefix):
        found.append(f"enum value {name} lacks its enum's name; call it {prefix}{name}")
    if is_first and (number != "0" or name != f"{prefix}UNSPECIFIED"):
        found.append(f"first value of {enum} is {name} = {number}; let it be {prefix}UNSPECIFIED = 0")
    return found


def check_rpc(name: str, request: str, response: str) -> list[str]:
    found = []
    if request != f"{name}Request":
        found.append(f"rpc {name} takes {request}; give it a {name}Request of its own, so that it can grow")
    if response != f"{name}Response":
        found.append(f"rpc {name} returns {response}; give it a {name}Response of its own, so that it can grow")
    return found


def check_file(tree: Tree, path: str) -> list[str]:
    found = []
    blocks: list[tuple[str, str]] = []  # the blocks that are open: kind and name
    commented = False  # the line above is a comment
    values = 0
    for number, raw in tree.lines(path):
        line = raw.strip()
        code, slashes, _ = line.partition("//")
        code = code.strip()
        if not code:
            commented = bool(slashes)
            continue
        kind, name, wrong = "", "", []
        if match := BLOCK.match(code):
            kind, name = match.groups()
            blocks.append((kind, name))
            values = 0
            if not re.fullmatch(r"[a-z][a-z0-9_]*" if kind == "oneof" else r"[A-Z][A-Za-z0-9]*", name):
                wrong.append(f"{kind} {name}: write messages, enums and services LikeThis, oneofs like_this")
        elif match := RPC.match(code):
            kind, name = "rpc", match.group(1)
            wrong = check_rpc(*match.groups())
            if code.endswith("{"):
                blocks.append(("rpc", name))
        elif blocks and blocks[-1][0] == "enum" and (match := VALUE.match(code)):
            kind, name = "enum value", match.group(1)
            wrong = check_value(blocks[-1][1], name, match.group(2), values == 0)
            values += 1
        elif blocks and blocks[-1][0] in ("message", "oneof") and (match := FIELD.match(code)):
            kind, name = "field", match.group(1)
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                wrong.append(f"field {name}: write fields like_this")
        if kind and not (commented or slashes):
            wrong.append(f"{kind} {name} has no comment; say above it what it is, with its unit")
        if code.endswith("}") and blocks:
            blocks.pop()
        found += [f"{path}:{number}: {w}" for w in wrong]
        commented = False
    return found


def check(tree: Tree) -> list[str]:
    found = []
    for path in tree.matching(".proto"):
        found += check_file(tree, path)
        folder = path.removeprefix("proto/").rpartition("/")[0].replace("/", ".")
        if f"package {folder};" not in tree.files[path]:
            found.append(f"{path}:1: package and folder differ; write package {folder};")
    return found
