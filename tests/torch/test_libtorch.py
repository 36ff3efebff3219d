"""C++ trainers on libtorch: gradgate/torch.hpp, and the example, built against the installed torch and run on two ranks.

What is built is kept, by the contents of what it was built of, in GRADGATE_CACHE or .cache.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import launch
import pytest
import torch
from gradgate import _tap_build
from test_tap import CACHE

sys.path.insert(0, str(launch.ROOT / "examples" / "demo"))
import processes  # noqa: E402

LIBRARY = pathlib.Path(os.environ.get("GRADGATE_LIBRARY", launch.ROOT / "build/debug/lib/libgradgate.so")).resolve()
INCLUDE = launch.ROOT / "shim" / "include"
HEADERS = sorted((INCLUDE / "gradgate").iterdir())
EXAMPLE, ROWS = launch.ROOT / "examples" / "libtorch", launch.HERE / "libtorch"


def compiler() -> str:
    found = _tap_build.compiler()
    if found is None or shutil.which("cmake") is None:
        pytest.skip("NOT TESTED: no C++ compiler or no CMake")
    done = subprocess.run(
        [found.command, "-E", "-x", "c++", "-"], input="#include <gloo/context.h>\n", capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("NOT TESTED: no Gloo headers (Debian: libgloo-dev), which c10d's Gloo group needs")
    return found.command


@pytest.fixture(scope="module")
def programs() -> dict[str, pathlib.Path]:
    """Both programs, compiled at the same time: torch's headers take half a minute each."""
    command = compiler()
    digest = hashlib.sha256(f"{torch.version.git_version} {command} {LIBRARY}".encode())
    for path in (*HEADERS, *sorted(ROWS.iterdir()), *sorted(EXAMPLE.iterdir())):
        digest.update(path.read_bytes())
    folder = pathlib.Path(CACHE) / "libtorch" / digest.hexdigest()[:20]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = pathlib.Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            build(work, command)
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return {"rows": folder / "rows" / "rows", "train": folder / "example" / "train"}


def build(folder: pathlib.Path, command: str) -> None:
    options = [f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}", f"-DCMAKE_CXX_COMPILER={command}"]
    options += [f"-DGRADGATE_LIBRARY={LIBRARY}", f"-DGRADGATE_INCLUDE_DIR={INCLUDE}"]
    building: list[subprocess.Popen[str]] = []
    try:
        for name, source in (("rows", ROWS), ("example", EXAMPLE)):
            script = f'cmake -S "{source}" -B {name} "$@" && exec cmake --build {name}'
            started = ["sh", "-c", script, "build", *options]
            building.append(subprocess.Popen(started, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for process in building:
            output, _ = process.communicate(timeout=280)
            assert process.returncode == 0, output
    finally:
        for process in building:
            process.kill()


def run(program: pathlib.Path, *arguments: str, **env: str) -> str:
    given = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "GRADGATE_DIR": "/nowhere", **env}
    done = subprocess.run([program, *arguments], env=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


NAMES = re.findall(r'\{"(\w+)",\s*&', (ROWS / "rows.cc").read_text())


@pytest.fixture(scope="module")
def told(programs: dict[str, pathlib.Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(programs["rows"], f"{tmp_path_factory.mktemp('stores')}/")


@pytest.mark.parametrize("name", NAMES)
def test_row(told: str, name: str) -> None:
    """Of rows.cc, on both ranks; its lines say what was wrong."""
    assert sorted(re.findall(rf"^{name} (\d) ok$", told, re.MULTILINE)) == ["0", "1"], told


def test_every_row_is_known() -> None:
    assert len(NAMES) == 12


LINE = r"(\d+) +(\d+) +([\d.]+) +(\d+) +(\d+) of (\d+)"


def test_the_example_saves_what_it_says(programs: dict[str, pathlib.Path], tmp_path: pathlib.Path) -> None:
    binaries = processes.Binaries(os.environ.get("GRADGATE_BUILD_DIR", launch.ROOT / "build" / "debug"))
    with processes.Daemon(binaries, tmp_path / "daemon") as daemon:
        output = run(programs["train"], "2", "5", GRADGATE_DIR=daemon.directory, GRADGATE_JOB="libtorch")
        shown = [daemon.wait_state(job, "FINISHED")["ranks"] for job in ("libtorch", "libtorch#2")]
    assert "parameters: the same bytes; counts: as the dispatcher's" in output
    each, once = (re.search(rf"^{name} +{LINE}", output, re.MULTILINE) for name in ("every micro-step", "once a window"))
    assert each and each.groups()[:4] == ("5", "20", "4.0", "0"), output
    assert once and once.groups()[:4] == ("5", "20", "1.0", "15"), output
    assert [each.group(5), once.group(5)] == [each.group(6), once.group(6)], output
    for ranks in shown:
        assert [(one["rank"], int(one["totals"]["step_count"]), int(one["totals"]["micro_step_count"])) for one in ranks] == [
            (0, 5, 20),
            (1, 5, 20),
        ]


def test_the_example_with_a_partial_window_and_other_ranks(programs: dict[str, pathlib.Path]) -> None:
    for ranks, extra in (("2", "2"), ("1", "0"), ("3", "1")):
        assert "parameters: the same bytes" in run(programs["train"], ranks, "3", extra)
