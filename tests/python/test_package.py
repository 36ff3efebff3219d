"""What `pip install ./shim/python` installs beside the modules: a library that stands alone, and all that the tap is built from.

It is built from what a source distribution has, outside of the repository.
"""

from __future__ import annotations

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "shim" / "python" / "gradgate"
sys.path.insert(0, str(ROOT / "shim" / "python" / "build_backend"))

import staging  # noqa: E402


def run(*command: str, **environment: str) -> str:
    plain = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "GRADGATE_LIBRARY")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, env={**plain, **environment})
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def tap_sources() -> set[str]:
    """_tap_build.READ, without importing it: it needs torch."""
    tree = ast.parse((PACKAGE / "_tap_build.py").read_text(encoding="utf-8"))
    found: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = {c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
    names = found["SOURCES"] | found["READ"] - {"shim/torch/"}
    return {name if "/" in name else f"shim/torch/{name}" for name in names}


class Package(unittest.TestCase):
    def test_what_is_installed_is_complete_and_stands_alone(self) -> None:
        with tempfile.TemporaryDirectory(prefix="gradgate-") as folder:
            build, alone, site = f"{folder}/build", pathlib.Path(folder) / "gradgate", pathlib.Path(folder) / "site"
            staging.stage(ROOT, alone)
            generator = os.environ.get("CMAKE_GENERATOR", "Ninja" if shutil.which("ninja") else "Unix Makefiles")
            run("cmake", "-S", str(alone / "source"), "-B", build, "-G", generator, "-DGRADGATE_SHIM_ONLY=ON", "-DCMAKE_BUILD_TYPE=Release")
            run("cmake", "--build", build, "--parallel", "2")
            run("cmake", "--install", build, "--prefix", str(site))
            installed = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
            self.assertEqual(installed, {"gradgate/lib/libgradgate.so", *(f"gradgate/_tap_sources/{name}" for name in tap_sources())})
            library = site / "gradgate/lib/libgradgate.so"
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "--dynamic", str(library), LC_ALL="C")))
            self.assertLessEqual(
                {re.sub(r"\.so.*", "", name) for name in needed}, {"libc", "libm", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
            )
            shutil.copytree(alone / "gradgate", site / "gradgate", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            code = "from gradgate.ledger import Ledger; import gradgate; print(Ledger(accumulate=2, daemon_dir='').mode, gradgate.__file__)"
            told = run(sys.executable, "-B", "-c", code, PYTHONPATH=str(site))
            self.assertEqual(told.split(), ["window", str(site / "gradgate/__init__.py")])

    def test_a_source_distribution_reads_nothing_outside_of_it(self) -> None:
        with tempfile.TemporaryDirectory(prefix="gradgate-") as folder:
            alone = pathlib.Path(folder) / "gradgate"
            staging.stage(ROOT, alone)
            project = tomllib.loads((alone / "pyproject.toml").read_text(encoding="utf-8"))
            tool = project["tool"]["scikit-build"]
            self.assertTrue((alone / tool["cmake"]["source-dir"] / "CMakeLists.txt").is_file())
            version = alone / tool["metadata"]["version"]["input"]
            self.assertRegex(version.read_text(encoding="utf-8"), tool["metadata"]["version"]["regex"].replace("?P<value>", ""))
            self.assertNotIn("../..", (alone / "pyproject.toml").read_text(encoding="utf-8"))
            modules = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
            self.assertEqual({path.relative_to(alone / "gradgate") for path in (alone / "gradgate").rglob("*.py")}, modules)
            self.assertEqual([path for path in alone.rglob("*") if path.name in ("__pycache__", "build", ".venv")], [])
            self.assertTrue((alone / "LICENSE").is_file())


if __name__ == "__main__":
    unittest.main()
