"""Finds the C++ tap for the installed torch, or builds it: once per machine, by one process, while others wait.

    package     gradgate/_tap_prebuilt/<key>/              what `python -m gradgate._tap_build DIRECTORY` made when installing
    cache       $GRADGATE_CACHE, else $XDG_CACHE_HOME/gradgate, else ~/.cache/gradgate:   tap/<key>-<compiler>/

An entry is a folder with tap.so and tap.json. It is loaded only if it belongs to this user or root, nobody else can write it, and the
library's hash is the one that was written when it was built; else it is built anew. The key holds what the library depends on: torch's
git version, its C++ ABI, Python, the flags, and the sources themselves.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S = 300.0
# In one translation unit: torch's headers are parsed once.
SOURCES = ("ledgers.cc", "completions.cc", "kernel.cc", "reducer.cc", "module.cc")
READ = (
    *(f"shim/torch/{name}" for name in (*SOURCES, "ledgers.h", "completions.h", "kernel.h", "reducer.h")),
    "shim/core/thread_annotations.h",
    "shim/include/gradgate/gradgate.h",
    "shim/include/gradgate/torch_reducer.hpp",
)
FLAGS = ("-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
PACKAGE = Path(__file__).resolve().parent


class Unbuildable(RuntimeError):
    """There is no C++ tap to be had here; the message says why in a line."""


@dataclass(frozen=True)
class Compiler:
    command: str
    version: str


def sources() -> Path:
    """The folder that holds shim/torch: in the package, else the repository."""
    for root in (PACKAGE / "_tap_sources", PACKAGE.parents[2]):
        if all((root / path).is_file() for path in READ):
            return root
    raise Unbuildable("the tap's sources are not installed")


def compiler() -> Compiler | None:
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++")):
        command = shutil.which(name)
        if command is None:
            continue
        told = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60, check=False)
        if told.returncode == 0 and told.stdout:
            return Compiler(command, told.stdout.splitlines()[0])
    return None


def key(root: Path) -> str:
    digest = hashlib.sha256()
    facts = (torch.version.git_version, torch._C._GLIBCXX_USE_CXX11_ABI, sysconfig.get_config_var("SOABI"), sys.platform, FLAGS)
    digest.update(repr(facts).encode())
    for path in READ:
        digest.update((root / path).read_bytes())
    return digest.hexdigest()[:20]


def cache() -> Path:
    own = os.environ.get("GRADGATE_CACHE")
    if own:
        return Path(own) / "tap"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "gradgate" / "tap"


# --- entries -------------------------------------------------------------------------------------------------------------------


def is_sound(entry: Path) -> bool:
    """Whether it is what a build left there, and only this user's or root's doing."""
    library = entry / "tap.so"
    try:
        for path in (entry, library, entry / "tap.json"):
            told = path.lstat()
            if told.st_uid not in (os.geteuid(), 0) or stat.S_ISLNK(told.st_mode) or told.st_mode & stat.S_IWOTH:
                return False
        expected = json.loads((entry / "tap.json").read_text())["sha256"]
        return bool(hashlib.sha256(library.read_bytes()).hexdigest() == expected)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def load(entry: Path) -> Any:
    path = str(entry / "tap.so")
    loader = importlib.machinery.ExtensionFileLoader("gradgate._tap", path)
    spec = importlib.util.spec_from_loader("gradgate._tap", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def ready(name: str, found: Compiler | None) -> Iterator[Path]:
    """Entries that may be there already."""
    yield PACKAGE / "_tap_prebuilt" / name
    if found is not None:
        yield cache() / f"{name}-{_short(found)}"
    elif cache().is_dir():  # built before the compiler went away
        yield from sorted(cache().glob(f"{name}-*[0-9a-f]"))


def _short(found: Compiler) -> str:
    return hashlib.sha256(found.version.encode()).hexdigest()[:8]


# --- building ------------------------------------------------------------------------------------------------------------------


def command(root: Path, found: Compiler, unity: Path, output: Path) -> list[str]:
    home = Path(torch.__file__).resolve().parent
    python = sysconfig.get_paths()["include"]
    if not (Path(python) / "Python.h").is_file():
        raise Unbuildable(f"no Python.h in {python}: install Python's development files")
    if not (home / "include" / "torch" / "library.h").is_file():
        raise Unbuildable(f"torch's headers are not installed in {home}")
    includes = [f"-I{root}", f"-I{root / 'shim' / 'include'}"]
    system = [home / "include", home / "include" / "torch" / "csrc" / "api" / "include", python]
    includes += [argument for path in system for argument in ("-isystem", str(path))]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
    libraries = [f"-L{home / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"]
    return [found.command, *FLAGS, abi, *includes, str(unity), "-o", str(output), *libraries]


def build(root: Path, found: Compiler, entry: Path) -> None:
    """Compiles into a folder beside `entry` and renames it, so that nobody ever sees half an entry."""
    print(f"gradgate: building the collective tap for torch {torch.__version__} (once, ~20 s)…", file=sys.stderr, flush=True)
    work = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", suffix=".tmp", dir=entry.parent))
    try:
        unity = work / "tap.cc"
        unity.write_text("#define PY_SSIZE_T_CLEAN\n#include <Python.h>\n" + "".join(f'#include "shim/torch/{n}"\n' for n in SOURCES))
        library = work / "tap.so"
        done = subprocess.run(
            command(root, found, unity, library), capture_output=True, text=True, errors="replace", timeout=DEADLINE_S, check=False
        )
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["no message"]
            raise Unbuildable(f"{found.command} failed: {lines[0][:300]}")
        facts = {"sha256": hashlib.sha256(library.read_bytes()).hexdigest(), "torch": torch.__version__, "compiler": found.version}
        (work / "tap.json").write_text(json.dumps(facts) + "\n")
        unity.unlink()
        if entry.exists():
            doomed = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", suffix=".tmp", dir=entry.parent))
            entry.rename(doomed / "old")
            shutil.rmtree(doomed, ignore_errors=True)
        work.rename(entry)
    except subprocess.TimeoutExpired:
        raise Unbuildable(f"{found.command} took longer than {DEADLINE_S:.0f} s") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def build_once(root: Path, found: Compiler, entry: Path) -> None:
    """One builder at a time. The lock is the kernel's and goes with its holder, however that ends."""
    began = time.time()
    failed = entry.parent / f"{entry.name}.failed"
    with open(entry.parent / f"{entry.name}.lock", "w") as lock:
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Unbuildable(f"another process has been building in {entry.parent} for {DEADLINE_S:.0f} s") from None
                time.sleep(0.05)
        if is_sound(entry):
            return
        if failed.exists() and failed.stat().st_mtime >= began:  # while we waited: the next one would fail as well
            raise Unbuildable(failed.read_text())
        try:
            build(root, found, entry)
        except Unbuildable as error:
            failed.write_text(str(error))
            raise
        failed.unlink(missing_ok=True)


def extension() -> Any:
    """The loaded module. Raises Unbuildable."""
    root = sources()
    name = key(root)
    found = compiler()
    for entry in ready(name, found):
        if is_sound(entry):
            return load(entry)
    if found is None:
        raise Unbuildable("no C++ compiler (g++, clang++ or $CXX)")
    entry = cache() / f"{name}-{_short(found)}"
    try:
        entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        build_once(root, found, entry)
    except OSError as error:
        raise Unbuildable(f"{entry.parent}: {error.strerror or error}; GRADGATE_CACHE names another place") from error
    return load(entry)


def main() -> None:
    """Builds into a folder, for an installation to ship."""
    root, found = sources(), compiler()
    if found is None:
        raise SystemExit("no C++ compiler")
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    build(root, found, target / key(root))


if __name__ == "__main__":
    main()
