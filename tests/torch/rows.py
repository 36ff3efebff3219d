"""Rows: what ranks do, and what each of them should have then. All rows of a test file with as many ranks share one launch.

    @row(gradients=[55.0], gradient={"all_reduce": 1}, at=[0, 0, 0, 2])
    def t2_once_per_window(rank: int, world: int) -> dict[str, Any]: ...        # returns at least the keys that are expected

    test_row = rows.tests(__file__, "moment_rows", "wrapper_rows")       # the modules that declare rows

Expected values are compared on every rank, and so are equal on all of them; Each(a, b) has one for each rank, Says(...) a text's parts.
A row that raises ends its launch; the rows behind it are launched again, so that each failure is told by itself.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import pathlib
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import launch
import pytest

TIMEOUT_S = 150.0
KEPT_OUTPUT = 2000


class Each(tuple[Any, ...]):
    """One expected value for each rank."""

    def __new__(cls, *values: Any) -> Each:
        return super().__new__(cls, values)


class Says(tuple[str, ...]):
    """Parts that a text has to have, in this order; a list of texts is taken as one."""

    def __new__(cls, *parts: str) -> Says:
        return super().__new__(cls, parts)

    def fits(self, text: Any) -> bool:
        whole, at = "\n".join(map(str, text)) if isinstance(text, list | tuple) else str(text), 0
        for part in self:
            found = whole.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        return True


class Near(float):
    """A number that is right within 1e-6."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and abs(float(self) - other) < 1e-6

    __hash__ = float.__hash__


@dataclass
class Row:
    path: str
    name: str
    world: int
    env: tuple[tuple[str, str], ...]
    group: bool
    expected: dict[str, Any] = field(default_factory=dict)


_rows: dict[str, dict[str, Row]] = {}  # by module and name


def row(
    *, world: int = 2, env: Mapping[str, str] | None = None, group: bool = True, **expected: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares a function of (rank, world) as a row, run on `world` ranks with `env`, and with or without a default process group."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        name, path = function.__name__, os.path.abspath(inspect.getsourcefile(function) or "")
        _rows.setdefault(function.__module__, {})[name] = Row(path, name, world, tuple(sorted((env or {}).items())), group, expected)
        return function

    return declare


def worker(rank: int, world: int, names: list[tuple[str, str]], folder: str) -> None:
    """Every row in turn; what it returned is written at once, so that rows before a failing one are not lost."""
    for path, name in names:
        try:
            result: Any = getattr(launch.module_of(path), name)(rank, world)
        except BaseException:
            print(f"row {name} raised", flush=True)
            raise
        target = pathlib.Path(folder, f"{name}.{rank}")
        target.with_suffix(f".{rank}.new").write_bytes(pickle.dumps(result))
        target.with_suffix(f".{rank}.new").rename(target)


def launch_rows(chosen: list[Row]) -> dict[str, Any]:
    """{name: results by rank, or a text that says how the row failed}."""
    results: dict[str, Any] = {}
    for kind in sorted({(one.world, one.env, one.group) for one in chosen}):
        left = [one for one in chosen if (one.world, one.env, one.group) == kind]
        while left:
            with tempfile.TemporaryDirectory(prefix="gradgate-rows-") as folder:
                arguments = ([(one.path, one.name) for one in left], folder)
                outcomes = launch.launch(worker, kind[0], args=arguments, timeout=TIMEOUT_S, env=dict(kind[1]), group=kind[2])
                while left and (done := _read(folder, left[0].name, kind[0])) is not None:
                    results[left.pop(0).name] = done
            if left:
                results[left.pop(0).name] = "\n".join(
                    f"--- rank {o.rank}: {o.error or 'returned'}\n{o.output[-KEPT_OUTPUT:]}" for o in outcomes
                )
            elif any(outcome.error for outcome in outcomes):
                pytest.fail("the ranks did not end well:\n" + "\n".join(map(str, outcomes)))
    return results


def _read(folder: str, name: str, world: int) -> list[Any] | None:
    files = [pathlib.Path(folder, f"{name}.{rank}") for rank in range(world)]
    if not all(file.exists() for file in files):
        return None
    return [pickle.loads(file.read_bytes()) for file in files]


def check(one: Row, results: Any) -> None:
    if isinstance(results, str):
        pytest.fail(f"row {one.name} failed:\n{results}")
    for rank, result in enumerate(results):
        if "profiler" in result and "gradgate" in result:
            assert result["gradgate"] == result["profiler"], f"rank {rank}: not the profiler's counts: {result}"
        for key, wanted in one.expected.items():
            want, got = wanted[rank] if isinstance(wanted, Each) else wanted, result[key]
            fits = want.fits(got) if isinstance(want, Says) else got == want
            assert fits, f"rank {rank}: {key} is {got!r}, not {want!r}; all: { {k: v for k, v in result.items() if k != key} }"


def tests(path: str, *modules: str) -> Any:
    """The test of a file's rows, parametrized. One launch for each number of ranks and environment, of what this session selected."""
    found: dict[str, Row] = {}
    for module in modules:
        importlib.import_module(module)
        assert not found.keys() & _rows[module].keys(), "two rows have one name"
        found.update(_rows[module])
    cache: dict[str, Any] = {}

    @pytest.mark.parametrize("name", list(found))
    def test_row(name: str, request: pytest.FixtureRequest) -> None:
        if name not in cache:
            items: list[Any] = [item for item in request.session.items if str(item.path) == path]
            cache.update(launch_rows([found[item.callspec.params["name"]] for item in items if item.originalname == "test_row"]))
        check(found[name], cache[name])

    return test_row


@contextlib.contextmanager
def refused(*kinds: type[BaseException]) -> Iterator[list[str]]:
    """What the block raised, as text with its notes; "" where it went through."""
    texts: list[str] = []
    try:
        yield texts
    except kinds as error:
        texts.append("\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])]))
    else:
        texts.append("")
