"""The files that tidy looks at: those git tracks or would track, or every file where there is no git."""

import os
import pathlib
import subprocess

IGNORED = {".git", ".cache", ".venv", "build", "__pycache__"}
TEXT = (
    ".cc",
    ".h",
    ".hpp",
    ".c",
    ".py",
    ".md",
    ".cmake",
    ".proto",
    ".json",
    ".yml",
    ".yaml",
    ".toml",
    ".map",
    ".sh",
    "/CMakeLists.txt",
    "/dev",
    "/run",
)


class Tree:
    """Paths relative to the root, with '/', and their text. Tests make one from a dictionary."""

    def __init__(self, files: dict[str, str]):
        self.files = files

    @classmethod
    def load(cls, root: pathlib.Path) -> "Tree":
        files = {}
        for path in list_files(root):
            if is_text(path) and (root / path).is_file():
                files[path] = (root / path).read_text(encoding="utf-8")
        return cls(files)

    def matching(self, *suffixes: str, under: tuple[str, ...] = ("",)) -> list[str]:
        return sorted(p for p in self.files if p.endswith(suffixes) and p.startswith(under))

    def lines(self, path: str) -> list[tuple[int, str]]:
        return list(enumerate(self.files[path].splitlines(), 1))


def is_text(path: str) -> bool:
    return f"/{path}".endswith(TEXT)


def git(root: pathlib.Path, *args: str) -> list[str] | None:
    """The lines a git command prints; None where git or the repository is missing."""
    command = ["git", "-c", "safe.directory=*", "-c", "core.quotePath=false", *args]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def list_files(root: pathlib.Path) -> list[str]:
    listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        return sorted(set(listed))
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [s for s in subfolders if s not in IGNORED]
        found += [(pathlib.Path(folder) / name).relative_to(root).as_posix() for name in names]
    return sorted(found)


def changed_files(root: pathlib.Path) -> set[str] | None:
    """Files that differ from the upstream branch (without one: from the previous commit); None: cannot be told."""
    base = git(root, "merge-base", "HEAD", "@{upstream}") or git(root, "rev-parse", "--verify", "HEAD~1")
    if not base:
        return None
    differing = git(root, "diff", "--name-only", "--diff-filter=d", base[0])
    untracked = git(root, "ls-files", "--others", "--exclude-standard")
    return None if differing is None or untracked is None else {*differing, *untracked}
