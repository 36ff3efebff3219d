"""Rules on the text of single files, and on what each folder must have."""

import re

from tree import Tree

CODE = (".cc", ".h", ".hpp", ".c", ".py")
CODE_LINES, TEST_LINES = 600, 900
ONE_FILE = {"shim/include/gradgate/gradgate.h": 900}  # the C interface is one header, mostly of comments
MACHINE_PATH = re.compile(r"(?<![\w.~])/(work|root)/")


def guard_of(path: str) -> str:
    """GRADGATE_ and the path as it is included."""
    return "GRADGATE_" + re.sub(r"[^A-Z0-9]", "_", path.removeprefix("shim/include/gradgate/").upper()) + "_"


def check_guard(tree: Tree, path: str) -> list[str]:
    wanted = guard_of(path)
    directives = [(n, line.split()) for n, line in tree.lines(path) if line.startswith("#")]
    if not directives or directives[0][1][:2] != ["#ifndef", wanted]:
        return [f"{path}:{directives[0][0] if directives else 1}: first directive is not the include guard; write #ifndef {wanted}"]
    if len(directives) < 2 or directives[1][1][:2] != ["#define", wanted]:
        return [f"{path}:{directives[0][0]}: include guard is not defined; write #define {wanted} on the next line"]
    return []


def check_lines(tree: Tree, path: str) -> list[str]:
    found = []
    for number, line in tree.lines(path):
        if "\t" in line:
            found.append(f"{path}:{number}: tab; use spaces")
        if line != line.rstrip():
            found.append(f"{path}:{number}: trailing blank; delete it")
        if MACHINE_PATH.search(line):
            found.append(f"{path}:{number}: path of one machine; make it relative or an option")
    if tree.files[path] and not tree.files[path].endswith("\n"):
        found.append(f"{path}:{len(tree.lines(path))}: no newline at the end; add it")
    return found


def check_size(tree: Tree, path: str) -> list[str]:
    cap = ONE_FILE.get(path, TEST_LINES if path.startswith("tests/") else CODE_LINES)
    count = len(tree.lines(path))
    return [f"{path}:{cap + 1}: {count} lines, more than {cap}; split it by job"] if count > cap else []


def check(tree: Tree) -> list[str]:
    found = []
    for path in sorted(tree.files):
        found += check_lines(tree, path)
        if path.endswith(CODE):
            found += check_size(tree, path)
        if path.endswith((".h", ".hpp")):
            found += check_guard(tree, path)
    top = {p.split("/")[0] for p in tree.files if "/" in p and not p.startswith(".")}
    for folder in sorted(top):
        if f"{folder}/README.md" not in tree.files:
            found.append(f"{folder}/README.md:1: missing; say what the folder is for and what it may depend on")
    return found
