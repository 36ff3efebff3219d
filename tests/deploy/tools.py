"""What the tests of deploy/ share: where things are, programs that may be missing, a Prometheus of the test's own."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys
import unittest
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NoReturn

import yaml  # type: ignore[import-untyped]

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
sys.path.append(str(ROOT / "examples" / "demo"))

import processes  # noqa: E402

__all__ = ["processes"]


def program(name: str, package: str) -> str:
    """Its path; a test that needs one that is not there is skipped, and says so."""
    path = shutil.which(name, path=f"{ROOT / '.cache/bin'}:{os.environ['PATH']}")
    if path is None:
        skip(f"{name} is missing: {package}")
    return str(path)


def skip(why: str) -> NoReturn:
    print(f"SKIPPED: {why}", flush=True)
    raise unittest.SkipTest(why)


def build_folder() -> pathlib.Path:
    return pathlib.Path(os.environ.get("GRADGATE_BUILD_DIR", ROOT / "build" / "debug"))


def read_yaml(path: pathlib.Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def documented_metrics() -> set[str]:
    """The names in the reference of metrics: what a rule or a dashboard may stand on."""
    text = (DEPLOY / "reference" / "metrics.md").read_text(encoding="utf-8")
    names = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `gradgate_")}
    histograms = {name for name in names if name.endswith(("_duration_seconds", "_exposed_seconds"))}
    return names | {f"{name}_bucket" for name in histograms}


class Prometheus:
    """A server that scrapes each second and evaluates the rules of deploy/."""

    def __init__(self, folder: pathlib.Path, target: str) -> None:
        config = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(DEPLOY / "prometheus" / name) for name in config["rule_files"]]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        command = [program("prometheus", "Debian's package prometheus"), f"--config.file={folder / 'prometheus.yml'}"]
        command += [f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0"]
        self.process = processes.Process(command)
        self.url = "http://" + self.process.wait_line('msg="Listening on"').split("address=")[1].split()[0]
        self.process.wait_line("Server is ready to receive web requests")

    def ask(self, path: str, **parameters: str) -> Any:
        """The answer's data. An expression that does not parse, or cannot be evaluated, raises with what Prometheus says."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression: str) -> list[Any]:
        return list(self.ask("query", query=expression)["result"])

    def close(self) -> None:
        self.process.__exit__()
