"""The C++ tap is built once, by one process; whatever is wrong with cache or compiler ends in a sound library or the Python tap.

The compiler is a script that hands out a library built before, and notes each call.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import sys
import traceback
import warnings

import pytest
from gradgate import _tap_build, _tap_operators, tap  # noqa: F401 - imported before the forks
from test_tap import CACHE

COMPILER = """#!/bin/sh
[ "$1" = --version ] && {{ echo "stub 1.0"; exit 0; }}
echo call >> {calls}
{before}
while [ "$1" != -o ]; do shift; done
cp {library} "$2"
"""


NUMBERS = itertools.count()


class Loading:
    """tap.load() in a forked process, which has torch already: importing it takes longer than all the rest."""

    def __init__(self, env: dict[str, str], output: pathlib.Path) -> None:
        self.file, self.status = output, -1
        self.pid = os.fork()
        if self.pid == 0:
            try:
                descriptor = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
                for standard in (1, 2):
                    os.dup2(descriptor, standard)
                sys.stderr = os.fdopen(2, "w", closefd=False)
                os.environ.update(env)
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    seen = tap.load()
                lines = [f"{warning.category.__name__}: {warning.message}\n" for warning in told]
                os.write(1, "".join([*lines, f"tap: {seen.native} {seen.seeing} {seen.reason}\n"]).encode())
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(0)

    def output(self) -> str:
        _, status = os.waitpid(self.pid, 0)
        self.status = os.waitstatus_to_exitcode(status)
        return self.file.read_text()


class Place:
    """A cache and a compiler of its own."""

    def __init__(self, folder: pathlib.Path, library: pathlib.Path) -> None:
        self.cache, self.calls, self.compiler, self.library = folder / "cache", folder / "calls", folder / "compiler", library
        self.calls.touch()
        self.use_compiler()

    def use_compiler(self, before: str = "") -> None:
        self.compiler.write_text(COMPILER.format(calls=self.calls, before=before, library=self.library))
        self.compiler.chmod(0o755)

    def start(self, **extra: str) -> Loading:
        env = {"GRADGATE_CACHE": str(self.cache), "CXX": str(self.compiler), "GRADGATE_TAP": "native", **extra}
        return Loading(env, self.calls.with_name(f"output.{next(NUMBERS)}"))

    def load(self, **extra: str) -> str:
        return self.start(**extra).output()

    def built(self) -> int:
        return len(self.calls.read_text().split())

    def entry(self) -> pathlib.Path:
        (entry,) = (path.parent for path in self.cache.glob("tap/*/tap.so"))
        return entry


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A tap for the installed torch, by the real compiler."""
    root, compiler = _tap_build.sources(), _tap_build.compiler()
    assert compiler is not None
    entry = tmp_path_factory.mktemp("built") / "entry"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADGATE_CACHE", CACHE)
        for ready in _tap_build.ready(_tap_build.key(root), compiler):
            if _tap_build.is_sound(ready):
                return ready / "tap.so"
    _tap_build.build(root, compiler, entry)
    return entry / "tap.so"


@pytest.fixture
def place(tmp_path: pathlib.Path, library: pathlib.Path) -> Place:
    return Place(tmp_path, library)


NATIVE, PYTHON, OFF = "tap: True True \n", "tap: False True tap_python\n", "tap: False False tap_off\n"


def test_two_processes_build_once(place: Place) -> None:
    place.use_compiler(before="sleep 2")
    processes = [place.start() for _ in range(2)]
    outputs = [process.output() for process in processes]
    assert all(NATIVE in output for output in outputs), outputs
    assert sum("building the collective tap for torch" in output for output in outputs) == 1, outputs
    assert place.built() == 1
    assert NATIVE in place.load()
    assert place.built() == 1


def test_unsound_entries_are_built_anew(place: Place) -> None:
    assert NATIVE in place.load()
    entry = place.entry()
    whole = (entry / "tap.so").read_bytes()
    for spoiled in (whole[:5000], whole[:-1] + b"x", b""):
        (entry / "tap.so").write_bytes(spoiled)
        before = place.built()
        assert NATIVE in place.load()
        assert place.built() == before + 1
        assert (entry / "tap.so").read_bytes() == whole
    before = place.built()
    (entry / "tap.json").write_text("{")
    assert NATIVE in place.load()
    (entry / "tap.so").chmod(0o777)  # somebody else could have put it there
    assert NATIVE in place.load()
    assert place.built() == before + 2
    assert [path.name for path in entry.parent.iterdir() if path.suffix == ".tmp"] == []


def test_a_killed_builder_holds_nobody_up(place: Place) -> None:
    place.use_compiler(before="kill -9 $PPID; exit 1")
    killed = place.start()
    killed.output()
    assert killed.status == -9
    place.use_compiler()
    assert NATIVE in place.load()
    assert place.built() == 2


def test_a_failing_compiler_leaves_the_python_tap(place: Place) -> None:
    place.use_compiler(before="echo 'x.cc:1: error: no such thing' >&2; exit 1")
    output = place.load()
    assert PYTHON in output
    assert output.count("RuntimeWarning") == 1
    assert "(tap_python)" in output
    assert "error: no such thing" in output
    place.use_compiler(before="sleep 1; echo 'x.cc:1: error: no such thing' >&2; exit 1")
    before = place.built()
    outputs = [process.output() for process in [place.start() for _ in range(3)]]
    assert all(PYTHON in output for output in outputs), outputs
    assert place.built() <= before + 2  # who waited does not try again
    place.use_compiler()
    assert NATIVE in place.load()


def test_a_library_that_does_not_load_leaves_the_python_tap(place: Place, tmp_path: pathlib.Path) -> None:
    place.library = tmp_path / "other.so"
    place.library.write_bytes(b"not a library")
    place.use_compiler()
    output = place.load()
    assert PYTHON in output
    assert "(tap_python)" in output


def test_without_a_cache_or_a_compiler(place: Place, tmp_path: pathlib.Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    output = place.load(GRADGATE_CACHE=str(taken))
    assert PYTHON in output
    assert "GRADGATE_CACHE" in output
    nothing = {"CXX": "", "PATH": str(tmp_path / "empty")}
    output = place.load(**nothing)
    assert PYTHON in output
    assert "no C++ compiler" in output
    assert NATIVE in place.load()
    assert NATIVE in place.load(**nothing), "what was built before the compiler went away"


def test_chosen_by_the_environment(place: Place) -> None:
    assert place.load(GRADGATE_TAP="off") == OFF
    assert place.load(GRADGATE_TAP="python") == PYTHON
    assert place.built() == 0
    output = place.load(GRADGATE_TAP="nonsense")
    assert NATIVE in output
    assert "GRADGATE_TAP='nonsense'" in output
