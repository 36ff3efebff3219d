"""Imports of the Python packages point one way, as the includes do.

The shim's Python is thin: one file speaks to the C library, adapters know their wrapper and their contract alone, and nothing that ships
sees tests or examples. Examples use what any user can.
"""

import ast

from tree import Tree

PACKAGE = "shim/python/gradgate/"
ABI = PACKAGE + "_abi.py"
ADAPTERS = PACKAGE + "adapters/"
ABOVE = ("tests", "bench", "examples", "launch", "counting", "exact")


def imported(text: str, path: str) -> list[tuple[int, str]]:
    """Line and full name of each import, `from a import b` as a.b; relative ones made absolute."""
    found = []
    package = path.removeprefix("shim/python/").split("/")[:-1]
    for node in ast.walk(ast.parse(text, path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def is_in(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def wrong_in_package(path: str, name: str) -> str | None:
    if is_in(name, "ctypes") and path != ABI:
        return f"{name} outside _abi.py, the one file that speaks to the C library; call gradgate.ledger"
    if path.startswith(ADAPTERS) and is_in(name, "gradgate") and not is_in(name, "gradgate.adapters"):
        return f"{name} in an adapter, which sees nothing of gradgate but its contract; pass it in"
    if name.split(".")[0] in ABOVE:
        return f"{name} belongs to tests, bench or examples; nothing below imports those"
    return None


def wrong_in_example(name: str) -> str | None:
    parts = name.split(".")
    if parts[0] == "gradgate" and any(part.startswith("_") for part in parts):
        return f"{name} is private; an example uses what a user can"
    return None


def check(tree: Tree) -> list[str]:
    found = []
    for path in tree.matching(".py", under=(PACKAGE, "examples/")):
        try:
            names = imported(tree.files[path], path)
        except SyntaxError as problem:
            found.append(f"{path}:{problem.lineno}: does not parse: {problem.msg}")
            continue
        for number, name in names:
            wrong = wrong_in_package(path, name) if path.startswith(PACKAGE) else wrong_in_example(name)
            if wrong:
                found.append(f"{path}:{number}: {wrong}")
    return found
