"""scikit-build-core, but for source distributions: those carry the library's sources (staging.py), so that they can be built alone."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from typing import Any

from scikit_build_core import build
from scikit_build_core.build import (
    build_editable,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from staging import stage

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    with contextlib.ExitStack() as stack:
        output = str(pathlib.Path(sdist_directory).resolve())
        if not pathlib.Path("source").is_dir():  # else this is one
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "gradgate"
            stage(pathlib.Path.cwd().parents[1], folder)
            stack.enter_context(contextlib.chdir(folder))
        name: str = build.build_sdist(output, config_settings)
        return name
