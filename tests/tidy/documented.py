"""What a user can set or read by name is in the reference: environment variables, flags of the daemon, metrics. What SECURITY.md says is
tested is tested."""

import re

from tree import Tree

VARIABLE = re.compile(r'"(GRADGATE_[A-Z0-9_]+)"')
FLAG = re.compile(r"ABSL_FLAG\s*\(\s*[^,]+(?:<[^>]*>)?,\s*(\w+)")
METRIC = re.compile(r'"(gradgate_[a-z0-9_]+)"')
CODE = (".cc", ".h", ".hpp", ".c", ".py")
PAGES = "deploy/reference/"
NAMED_TEST = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+|test_\w+)`")
TEST = re.compile(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", re.MULTILINE)
PYTHON_TEST = re.compile(r"^class (\w+)|^    def (test_\w+)", re.MULTILINE)


def has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?!\w)", text) is not None


def tests_of(tree: Tree) -> set[tuple[str, str]]:
    """Suite and name of each."""
    found: set[tuple[str, str]] = set()
    for path in tree.matching(".cc", under=("tests/",)):
        found.update(TEST.findall(tree.files[path]))
    for path in tree.matching(".py", under=("tests/",)):
        suite = ""
        for name, test in PYTHON_TEST.findall(tree.files[path]):
            suite = name or suite
            found.add((suite, test))
    return found


def check_security(tree: Tree) -> list[str]:
    path = "SECURITY.md"
    if path not in tree.files:
        return []
    known = tests_of(tree)
    return [
        f"{path}:{number}: there is no test {suite}.{name}; name one that fails without the check"
        for number, line in tree.lines(path)
        for suite, name in NAMED_TEST.findall(line)
        if (suite, name) not in known
    ]


def check(tree: Tree) -> list[str]:
    found = check_security(tree)

    def look(path: str, at: int, what: str, name: str, page: str) -> None:
        if not has_word(tree.files.get(PAGES + page, ""), name):
            number = tree.files[path].count("\n", 0, at) + 1
            found.append(f"{path}:{number}: {what} {name} is not in {PAGES}{page}; ./dev docs puts it there")

    for path in tree.matching(*CODE):
        text = tree.files[path]
        if path.startswith(("tests/", PAGES)):
            continue
        for match in VARIABLE.finditer(text):
            look(path, match.start(), "environment variable", match[1], "environment.md")
        for match in METRIC.finditer(text) if path.startswith("daemon/metrics/") else ():
            look(path, match.start(), "metric", match[1], "metrics.md")
        for match in FLAG.finditer(text) if path.startswith("daemon/") else ():
            look(path, match.start(), "flag", f"--{match[1]}", "flags.md")
    return found
