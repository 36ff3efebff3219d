"""What the source says of names that people meet: codes with their comments, reasons, environment variables, metrics."""

from __future__ import annotations

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = (".cc", ".h", ".hpp", ".c", ".py")
LEAVES = ("bench", "examples", "tests")
FOLDERS = ("bench", "client", "daemon", "examples", "shim", "tests")


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def files(*folders: str) -> list[pathlib.Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in CODE and p.is_file())


def snake(name: str) -> str:
    """PageNotMemfd: page_not_memfd."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def sentence(comment: str) -> str:
    text = " ".join(comment.split()).rstrip(".")
    return text[:1].lower() + text[1:] if re.match(r"[A-Z][a-z ]", text) else text


def proto_enum(path: str, enum: str) -> dict[str, str]:
    """Values in small letters and without their prefix, each with the comment above it."""
    body = re.search(rf"^enum {enum} \{{\n(.*?)^\}}", read(path), re.MULTILINE | re.DOTALL)
    assert body, f"{path} has no enum {enum}"
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum).upper() + "_"
    found, comment = {}, ""
    for line in map(str.strip, body[1].splitlines()):
        if line.startswith("//"):
            comment += line[2:]
        elif value := re.match(rf"{prefix}(\w+) = \d+;", line):
            found[value[1].lower()] = sentence(comment)
            comment = ""
    return {name: text for name, text in found.items() if name != "unspecified"}


def cpp_enum(path: str, enum: str) -> dict[str, str]:
    """Values as snake_case, each with the comment behind it."""
    body = re.search(rf"^enum class {enum}[^{{]*\{{\n(.*?)^\}};", read(path), re.MULTILINE | re.DOTALL)
    assert body, f"{path} has no enum {enum}"
    values = re.findall(r"^\s+k(\w+)(?: = \d+)?,?(?:\s*//\s*(.*))?$", body[1], re.MULTILINE)
    return {snake(name): text.rstrip(".") for name, text in values}


def statuses() -> dict[str, str]:
    """GG_…: its comment, and Python's exception for it."""
    body = re.search(r"typedef int32_t gg_status_t;\nenum \{\n(.*?)\n\};", read("shim/include/gradgate/gradgate.h"), re.DOTALL)
    assert body
    comments = re.findall(r"^\s+(GG_\w+) = \d+,?(?:\s*/\* (.*?) \*/)?$", body[1], re.MULTILINE)
    return {name: sentence(text) for name, text in comments}


def exceptions() -> dict[str, tuple[str, str]]:
    """Python's: the status each stands for, and what its docstring says."""
    tree = ast.parse(read("shim/python/gradgate/errors.py"))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            status = next((ast.unparse(s.value).removeprefix("_abi.") for s in node.body if isinstance(s, ast.Assign)), "")
            found[f"gradgate.{node.name}"] = (
                f"GG_{status}" if status else "",
                (ast.get_docstring(node) or "").replace("\n", " ").rstrip("."),
            )
    base = ast.parse(read("shim/python/gradgate/adapters/base.py"))
    unreduced = next(n for n in base.body if isinstance(n, ast.ClassDef) and n.name == "Unreduced")
    found["gradgate.Unreduced"] = ("", (ast.get_docstring(unreduced) or "").rstrip("."))
    return found


def _first_strings(call: ast.Call) -> list[str]:
    if not call.args:
        return []
    return [n.value for n in ast.walk(call.args[0]) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def reasons() -> set[str]:
    """Codes of what trainers are told, once each: of the library in C++, and of the Python package."""
    found = set()
    for path in files("shim"):
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".py":
            found |= set(re.findall(r'Warn\("(\w+)"', text))
            if path.name == "link.h":
                told = re.search(r"Reasons: (.*?)\.", text, re.DOTALL)
                assert told, "shim/link/link.h lists no reasons"
                found |= set(re.findall(r"link_\w+", told[1]))
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in ("NoEffect", "warn", "leave_alone") and "warnings" not in ast.unparse(node.func):
                    found |= set(_first_strings(node))
            elif isinstance(node, ast.Dict):
                found |= {
                    v.value
                    for k, v in zip(node.keys, node.values, strict=True)
                    if isinstance(k, ast.Constant) and k.value == "reason" and isinstance(v, ast.Constant) and isinstance(v.value, str)
                }
    shared = re.search(r"^SHARED_REASONS = frozenset\((.*?)^\)", read("shim/python/gradgate/ledger.py"), re.MULTILINE | re.DOTALL)
    assert shared, "shim/python/gradgate/ledger.py has no SHARED_REASONS"
    found |= set(re.findall(r'"(\w+)"', shared[1]))
    return {code for code in found if re.fullmatch(r"[a-z][a-z0-9_]+", code)}


NAMES = r'"([A-Z][A-Z0-9_]+)"'
READS = re.compile(rf"(?:getenv|environ\.get|environ\.pop)\(\s*{NAMES}" rf"|environ\[{NAMES}\]|{NAMES} in os\.environ|\bVARIABLE = {NAMES}")
HELPER = re.compile(r"\b(\w+)\(const char\* name\)[^{;]*\{[^}]*getenv\(name\)")  # a function that reads what it is given
LISTS = re.compile(r"(?:FirstSet|NumberFrom)\(\s*\{([^}]*)\}")


def variables() -> dict[str, list[str]]:
    """Environment variables, and the folders whose code reads them: tests where nothing else does."""
    found: dict[str, set[str]] = {}
    for path in files(*FOLDERS):
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(ROOT)
        names = {name for groups in READS.findall(text) for name in groups if name}
        for helper in HELPER.findall(text):
            names |= set(re.findall(rf"\b{helper}\(\s*{NAMES}", text))
        for listed in LISTS.findall(text):
            names |= set(re.findall(NAMES, listed))
        if where.parts[0] == "tests":  # of these, what a person may set for them
            names = {name for name in names if name.startswith("GRADGATE") and where.parts[1] != "tidy"}
        for name in names:
            found.setdefault(name, set()).add("/".join(where.parent.parts[: 1 if where.parts[0] in LEAVES else 2]))
    return {name: sorted(folders - {"tests"}) or ["tests"] for name, folders in sorted(found.items())}


METRIC = re.compile(r'"(gradgate_[a-z0-9_]+)",\s*((?:"[^"]*"\s*)+),\s*(?:prometheus::)?(?:MetricType::(\w+)|(&))')


def metrics() -> dict[str, tuple[str, str]]:
    """Name: type and help, of each family in daemon/metrics."""
    found = {}
    for path in files("daemon/metrics"):
        for name, help_text, kind, member in METRIC.findall(path.read_text(encoding="utf-8")):
            text = "".join(re.findall(r'"([^"]*)"', help_text))
            found[name] = ("counter" if member else kind.lower(), text)
    return found


def metric_names() -> set[str]:
    return {name for path in files("daemon/metrics") for name in re.findall(r'"(gradgate_[a-z0-9_]+)"', path.read_text(encoding="utf-8"))}
