"""Makes the helpers beside the tests, and the shim of this tree, importable."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[1] / "shim" / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
