"""Prometheus's configuration and rules: promtool accepts them, each alert fires, does not fire and resolves as its file in alerts/ says."""

from __future__ import annotations

import pathlib
import re
import subprocess
import tempfile
import unittest
from typing import Any

import tools
import yaml  # type: ignore[import-untyped]

RULES = tools.DEPLOY / "prometheus"
TESTS = tools.ROOT / "tests" / "deploy" / "alerts"
# Within it a slot has one process; --metrics_linger's default.
LONGEST_RANGE = ("5m",)


def rules(name: str) -> list[Any]:
    return [rule for group in tools.read_yaml(RULES / name)["groups"] for rule in group["rules"]]


def alerts() -> dict[str, Any]:
    return {rule["alert"]: rule for rule in rules("alerts.yml")}


class Rules(unittest.TestCase):
    def promtool(self, *arguments: str) -> None:
        done = subprocess.run(
            [tools.program("promtool", "Debian's package prometheus"), *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        self.assertEqual(done.returncode, 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}")
        self.assertNotIn("warning", (done.stdout + done.stderr).lower())

    def test_configuration(self) -> None:
        self.promtool("check", "config", str(RULES / "prometheus.yml"))

    def test_configuration_for_kubernetes(self) -> None:
        """But for the discovery, which Debian's promtool is built without."""
        config = tools.read_yaml(RULES / "prometheus-kubernetes.yml")
        (scrape,) = config["scrape_configs"]
        self.assertEqual(scrape["job_name"], "gradgate")
        self.assertEqual(scrape.pop("kubernetes_sd_configs"), [{"role": "pod"}])
        config["rule_files"] = [str(RULES / name) for name in config["rule_files"]]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "prometheus.yml"
            path.write_text(yaml.safe_dump(config), encoding="utf-8")
            self.promtool("check", "config", str(path))

    def test_alerts_by_their_files(self) -> None:
        self.promtool("test", "rules", *(str(path) for path in sorted(TESTS.glob("*.yml"))))

    def test_each_alert_has_a_file_that_sees_it_fire_and_resolve(self) -> None:
        self.assertEqual({path.stem for path in TESTS.glob("*.yml")}, set(alerts()))
        for name in alerts():
            seen = [case for test in tools.read_yaml(TESTS / f"{name}.yml")["tests"] for case in test.get("alert_rule_test", ())]
            self.assertEqual({case["alertname"] for case in seen}, {name})
            fires = [bool(case["exp_alerts"]) for case in seen]
            self.assertFalse(fires[0], f"{name}: first not firing")
            self.assertIn(True, fires, name)
            self.assertFalse(fires[-1], f"{name}: resolved at last")

    def test_annotations(self) -> None:
        runbook = (tools.DEPLOY / "RUNBOOK.md").read_text(encoding="utf-8")
        for name, alert in alerts().items():
            self.assertEqual(set(alert["annotations"]), {"summary", "description", "action", "runbook"}, name)
            self.assertEqual(alert["annotations"]["runbook"], f"deploy/RUNBOOK.md#{name.lower()}")
            section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", runbook, re.MULTILINE | re.DOTALL)
            assert section, f"deploy/RUNBOOK.md has no section {name}"
            for part in ("**Symptom**", "**Means**", "**Remedy**"):
                self.assertIn(part, section[1], name)
        self.assertEqual(set(re.findall(r"^## (Gradgate\w+)$", runbook, re.MULTILINE)), set(alerts()), "sections without an alert")

    def test_metrics_are_documented(self) -> None:
        recorded = {rule["record"] for rule in rules("recording.yml")}
        known = tools.documented_metrics() | recorded
        for rule in rules("recording.yml") + rules("alerts.yml"):
            text = rule["expr"] + rule.get("annotations", {}).get("description", "")
            for name in re.findall(r"[a-z_:]*gradgate_[a-z0-9_:]+", text):
                self.assertIn(name, known, rule)
            for name in re.findall(r'kind=~?"([a-z_|]+)"', rule["expr"]):
                protos = (tools.ROOT / "proto/gradgate/v1/diagnosis.proto").read_text(encoding="utf-8")
                for kind in name.split("|"):
                    self.assertIn(f" VERDICT_KIND_{kind.upper()} =", protos)

    def test_ranges_end_before_a_slot_is_used_again(self) -> None:
        flags = (tools.DEPLOY / "reference" / "flags.md").read_text(encoding="utf-8")
        self.assertIn(f"| `--metrics_linger` | `{LONGEST_RANGE[0]}` |", flags)
        for rule in rules("recording.yml") + rules("alerts.yml"):
            for range_ in re.findall(r"\[(\w+)\]", rule["expr"]):
                self.assertIn(range_, LONGEST_RANGE, rule)


if __name__ == "__main__":
    unittest.main(verbosity=2)
