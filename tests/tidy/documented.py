"""What a user can set or read by name is written down: environment variables, flags of the daemon, metrics. What SECURITY.md says is tested
is tested."""

import re

from tree import Tree

VARIABLE = re.compile(r'"(GRADGATE_[A-Z0-9_]+)"')
FLAG = re.compile(r"ABSL_FLAG\s*\(\s*[^,]+(?:<[^>]*>)?,\s*(\w+)")
METRIC = re.compile(r'"(gradgate_[a-z0-9_]+)"')
CODE = (".cc", ".h", ".hpp", ".c", ".py")
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
    readmes = "\n".join(tree.files[p] for p in tree.matching("README.md"))
    daemon = tree.files.get("daemon/README.md", "")
    for path in tree.matching(*CODE):
        if path.startswith("tests/"):
            continue
        for number, line in tree.lines(path):
            found += [
                f"{path}:{number}: environment variable {name} is in no README.md; document it in its folder's"
                for name in VARIABLE.findall(line)
                if not has_word(readmes, name)
            ]
            if path.startswith("daemon/metrics/"):
                found += [
                    f"{path}:{number}: metric {name} is not in daemon/README.md; add it to the table of metrics"
                    for name in METRIC.findall(line)
                    if not has_word(daemon, name)
                ]
        if path.startswith("daemon/"):
            text = tree.files[path]
            for match in FLAG.finditer(text):
                if not has_word(daemon, f"--{match.group(1)}"):
                    number = text.count("\n", 0, match.start()) + 1
                    found.append(f"{path}:{number}: flag --{match.group(1)} is not in daemon/README.md; add it to the table of flags")
    return found
