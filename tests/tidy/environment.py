#!/usr/bin/env python3
"""Makes the virtual environment of the Python tests, tools and examples: .venv, or .venv-torch-VERSION for another torch.

Done already: says nothing, in a twentieth of a second. PyTorch's build for CPUs alone is taken where the package index that pip is
configured with has it; the ordinary one comes with libraries for GPUs, several GB, and is said to.
"""

from __future__ import annotations

import argparse
import hashlib
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUIREMENTS = ("shim/python/requirements-test.txt", "tests/tidy/requirements.txt")
STAMP = "made-of"
NOT_THERE = ("No matching distribution", "ResolutionImpossible")  # the latter where pip is configured with constraints


def wanted(torch: str | None) -> list[str]:
    """One requirement each, `torch` in place of the pinned one."""
    lines = [line.split("#")[0].strip() for name in REQUIREMENTS for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]
    return [f"torch=={torch}" if torch and line.startswith("torch==") else line for line in lines if line]


def run(command: list[str], dry: bool) -> subprocess.CompletedProcess[str] | None:
    print("+ " + shlex.join(command), flush=True)
    return None if dry else subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def install(pip: list[str], requirements: list[str], dry: bool) -> str | None:
    """What went wrong, or None."""
    torch = next(line for line in requirements if line.startswith("torch=="))
    done = run([*pip, f"{torch}+cpu"], dry)
    if done and done.returncode != 0:
        if not any(reason in done.stdout for reason in NOT_THERE):
            return done.stdout
        print(
            f"environment: the configured package index has no {torch}+cpu: the build with GPU libraries is several GB; this takes a while"
        )
    done = run([*pip, *requirements], dry)
    return done.stdout if done and done.returncode != 0 else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", metavar="VERSION", help="another version of torch than the pinned one")
    parser.add_argument("-n", dest="dry", action="store_true", help="print the commands, run nothing")
    options = parser.parse_args()
    folder = f".venv-torch-{options.torch}" if options.torch else ".venv"
    requirements = wanted(options.torch)
    stamp = ROOT / folder / STAMP
    made_of = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest() + "\n"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == made_of:
        return 0
    usable = (ROOT / folder / "bin/pip").exists() and sys.version.split()[0] in (ROOT / folder / "pyvenv.cfg").read_text(encoding="utf-8")
    made = None if usable else run([sys.executable, "-m", "venv", "--clear", folder], options.dry)
    pip = [f"{folder}/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    problem = made.stdout if made and made.returncode != 0 else install(pip, requirements, options.dry)
    if problem:
        print(f"environment: {folder} could not be made:\n{problem}", file=sys.stderr)
        return 1
    if not options.dry:
        stamp.write_text(made_of, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
