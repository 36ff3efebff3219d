"""DeepSpeed's engine under gradgate. CI does not install the package, which is built from source: without it these are skipped."""

from __future__ import annotations

import importlib.util

import pytest
import rows

if importlib.util.find_spec("deepspeed") is None:
    pytest.skip("deepspeed is not installed: gradgate is not tried on its engine", allow_module_level=True)

test_row = rows.tests(__file__, "deepspeed_rows")
