"""What a user can set or read by name is written down: environment variables, flags of the daemon, metrics."""

import re

from tree import Tree

VARIABLE = re.compile(r'"(GRADGATE_[A-Z0-9_]+)"')
FLAG = re.compile(r"ABSL_FLAG\s*\(\s*[^,]+(?:<[^>]*>)?,\s*(\w+)")
METRIC = re.compile(r'"(gradgate_[a-z0-9_]+)"')
CODE = (".cc", ".h", ".hpp", ".c", ".py")


def has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?!\w)", text) is not None


def check(tree: Tree) -> list[str]:
    found = []
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
