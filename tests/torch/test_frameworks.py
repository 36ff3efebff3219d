"""Lightning, Fabric, Accelerate and Transformers with gradgate's one line: bytes as without it, and the counts that torch sees."""

import importlib.util

import pytest
import rows

NEEDS = {
    "lightning": ("lightning_rows", "lightning_sharded_rows", "fabric_rows"),
    "accelerate": ("accelerate_rows",),
    "transformers": ("transformers_rows",),
}
THERE = {package: importlib.util.find_spec(package) is not None for package in NEEDS}

test_row = rows.tests(__file__, *(module for package, modules in NEEDS.items() if THERE[package] for module in modules))


@pytest.mark.parametrize("package", NEEDS)
def test_is_tried(package: str) -> None:
    if not THERE[package]:
        pytest.skip(f"{package} is not installed: what gradgate does for it is not tried")
