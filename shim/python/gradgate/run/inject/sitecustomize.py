"""Python imports this at start under `gradgate run`. Lets the sitecustomize that it hides run, and waits for torch."""

import importlib.abc
import importlib.util
import os
import sys
import traceback

_HERE = os.path.dirname(os.path.abspath(__file__))


def _others() -> None:
    """What would have been imported without gradgate."""
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    own = sys.modules.pop("sitecustomize", None)
    spec = importlib.util.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        if own is not None:
            sys.modules["sitecustomize"] = own
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


class _WaitForTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):  # type: ignore[no-untyped-def]
                run(module)
                _install()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _install() -> None:
    try:
        if importlib.util.find_spec("gradgate") is None:
            sys.path.append(os.environ["GRADGATE_RUN_PATH"])
        from gradgate.run import observer

        observer.install()
    except Exception:
        print("gradgate: this process is not observed:", file=sys.stderr)
        traceback.print_exc()


if "GRADGATE_RUN_PATH" in os.environ:
    sys.meta_path.insert(0, _WaitForTorch())
_others()
