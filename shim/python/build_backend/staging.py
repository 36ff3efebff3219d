"""The project as it is outside of the repository: what CMake reads of that is in `source/`, and pyproject.toml says so."""

from __future__ import annotations

import pathlib
import shutil

HERE = "shim/python"
READ = ("CMakeLists.txt", "proto", "shim")  # by a build of libgradgate.so alone
NOT_OURS = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", "dist", "build")


def copy(path: pathlib.Path, to: pathlib.Path) -> None:
    if path.is_dir():
        shutil.copytree(path, to, ignore=NOT_OURS)
    else:
        shutil.copy(path, to)


def stage(repository: pathlib.Path, folder: pathlib.Path) -> None:
    """Fills `folder`, which does not exist yet."""
    copy(repository / HERE, folder)
    copy(repository / "LICENSE", folder / "LICENSE")
    source = folder / "source"
    source.mkdir()
    for name in READ:
        copy(repository / name, source / name)
    shutil.rmtree(source / HERE)  # the package is there already, but for what CMake reads
    (source / HERE).mkdir()
    copy(repository / HERE / "CMakeLists.txt", source / HERE / "CMakeLists.txt")
    project = folder / "pyproject.toml"
    project.write_text(project.read_text(encoding="utf-8").replace("../..", "source"), encoding="utf-8")
