"""Build files read like an index: no globs, and every source and every test is named in one."""

import posixpath
import re

from tree import Tree

GLOB = re.compile(r"\bfile\s*\(\s*GLOB|\baux_source_directory\s*\(", re.IGNORECASE)
BUILT = ("proto/", "shim/", "daemon/", "client/", "examples/", "bench/", "tests/")


def words(text: str) -> set[str]:
    """Words of a CMakeLists.txt without its comments; paths from the source folder are as good as relative ones."""
    stripped = re.sub(r"#.*", "", text)
    return {w.removeprefix("${CMAKE_CURRENT_SOURCE_DIR}/") for w in re.split(r'[\s()";]+', stripped)}


def is_named(path: str, named: dict[str, set[str]]) -> bool:
    folder = posixpath.dirname(path)
    while True:
        if posixpath.relpath(path, folder or ".") in named.get(folder, set()):
            return True
        if not folder:
            return f"${{PROJECT_SOURCE_DIR}}/{path}" in set().union(*named.values())
        folder = posixpath.dirname(folder)


def check(tree: Tree) -> list[str]:
    found = []
    named = {}
    for path in tree.matching("CMakeLists.txt", ".cmake"):
        for number, line in tree.lines(path):
            if GLOB.search(line.split("#")[0]):
                found.append(f"{path}:{number}: globbed sources; list them by name")
        if path.endswith("CMakeLists.txt"):
            named[posixpath.dirname(path)] = words(tree.files[path])
    for path in tree.matching(".cc", ".c", under=BUILT):
        if not is_named(path, named):
            found.append(f"{path}:1: no CMakeLists.txt names it, so nothing builds it; add it to the nearest one or delete it")
    for path in tree.matching(".py", under=("tests/", "bench/", "examples/", "shim/")):
        if posixpath.basename(path).startswith("test_") and not is_named(path, named):
            found.append(f"{path}:1: no CMakeLists.txt names it, so ctest never runs it; register it with add_test")
    return found
