"""Every query of the dashboards, asked of a real Prometheus that scraped a real daemon with two real jobs, and what a panel must say."""

from __future__ import annotations

import json
import pathlib
import re
import signal
import tempfile
import unittest
from typing import Any

import tools
from tools import processes

# Colours that people with any kind of colour blindness tell apart (Okabe and Ito).
SAFE = {"#0072B2", "#E69F00", "#D55E00", "#56B4E9", "#009E73", "#CC79A7", "#F0E442"}
ENDLESS = ("--ranks", "2", "--epochs", "100000", "--throttle", "3", "--hidden", "16", "--accumulate", "4", "--quiet")
GOOD, WASTEFUL = "one-reduction", "four-reductions"


def dashboards() -> dict[str, Any]:
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted((tools.DEPLOY / "grafana").glob("*.json"))}


def panels(board: Any) -> list[Any]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions(board: Any) -> list[tuple[str, str]]:
    return [(panel["title"], target["expr"]) for panel in panels(board) for target in panel["targets"]]


def fill(text: str, job: str) -> str:
    """As Grafana does, with All where that is offered."""
    for name, value in {"node": ".*", "job": job, "run": ".*", "span": "30s"}.items():
        text = re.sub(rf"\${name}\b", value, text)
    return text


class Json(unittest.TestCase):
    def test_panels_explain_themselves(self) -> None:
        self.assertTrue(dashboards())
        for name, board in dashboards().items():
            for panel in panels(board):
                where = f"{name}: {panel['title']}"
                defaults = panel["fieldConfig"]["defaults"]
                self.assertGreater(len(panel["description"]), 15, f"{where}: description")
                self.assertTrue(defaults["noValue"], f"{where}: what an empty panel means")
                self.assertTrue(defaults["unit"], f"{where}: unit")
                self.assertEqual(panel["datasource"]["uid"], "${datasource}", where)
                self.assertEqual({target["datasource"]["uid"] for target in panel["targets"]}, {"${datasource}"}, where)
                self.assertEqual(len({target["refId"] for target in panel["targets"]}), len(panel["targets"]), where)

    def test_colours_can_be_told_apart(self) -> None:
        for name, board in dashboards().items():
            for colour in re.findall(r'"(?:color|fixedColor|iconColor)": "([^"]+)"', json.dumps(board)):
                self.assertIn(colour, SAFE, name)

    def test_variables(self) -> None:
        for name, board in dashboards().items():
            variables = {variable["name"] for variable in board["templating"]["list"]}
            self.assertLessEqual({"datasource", "node", "span"}, variables, name)
            builtin = {"__rate_interval", "__url_time_range", "__data"}
            used = set(re.findall(r"\$\{?(\w+)", json.dumps(board)))
            self.assertLessEqual(used - builtin, variables | {"__all"}, name)
            for title, expression in expressions(board):
                self.assertRegex(expression, r"\$node\b", f"{name}: {title} asks all nodes, whatever is chosen")
        self.assertIn("job", {variable["name"] for variable in dashboards()["gradgate-job.json"]["templating"]["list"]})

    def test_links_lead_somewhere(self) -> None:
        boards = dashboards()
        uids = {board["uid"] for board in boards.values()}
        self.assertEqual(len(uids), len(boards))
        for target in re.findall(r'"url": "/d/([\w-]+)', json.dumps(boards)):
            self.assertIn(target, uids)

    def test_layout(self) -> None:
        for name, board in dashboards().items():
            taken: set[tuple[int, int]] = set()
            self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]), name)
            for panel in board["panels"]:
                at = panel["gridPos"]
                self.assertLessEqual(at["x"] + at["w"], 24, f"{name}: {panel['title']}")
                cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
                self.assertFalse(cells & taken, f"{name}: {panel['title']} lies over another panel")
                taken |= cells

    def test_metrics_are_documented(self) -> None:
        known = tools.documented_metrics()
        for name, board in dashboards().items():
            queries = [query for _, query in expressions(board)]
            queries += [variable.get("definition", "") for variable in board["templating"]["list"]]
            for metric in re.findall(r"\bgradgate_[a-z0-9_]+", " ".join(queries)):
                self.assertIn(metric, known, name)


class Live(unittest.TestCase):
    """One daemon, one Prometheus and two jobs for all tests: one that reduces once per step, and one that reduces four times."""

    prometheus: tools.Prometheus

    @classmethod
    def setUpClass(cls) -> None:
        build = tools.build_folder()
        binaries = processes.Binaries(build, "digits")
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="gradgate-deploy-")))
        daemon = cls.enterClassContext(processes.Daemon(binaries, folder / "run"))
        cls.prometheus = tools.Prometheus(folder, daemon.metrics_url.split("/")[2])
        cls.addClassCleanup(cls.prometheus.close)
        for job, mode in ((GOOD, "enforce"), (WASTEFUL, "audit")):
            options = ("--job", job, "--daemon-dir", str(folder / "run"), *ENDLESS)
            trainer = cls.enterClassContext(processes.trainer(binaries, *options, env={"GRADGATE": mode}))
            cls.addClassCleanup(trainer.finish)
            cls.addClassCleanup(trainer.signal, signal.SIGTERM)
        windows = "min(sum by (job_name) (gradgate_windows_total * on (instance, slot) group_left (job_name) gradgate_rank_info)) > 40"
        processes.wait_for("windows of both jobs in Prometheus", lambda: cls.prometheus.query(windows))

    def wait_data(self, expression: str) -> list[Any]:
        return processes.wait_for(f"data of {expression}", lambda: self.prometheus.query(expression), deadline_s=20)

    def value(self, expression: str) -> float:
        """Of the one series that it has."""
        (only,) = self.wait_data(expression)
        return float(only["value"][1])

    def test_every_query_has_data(self) -> None:
        """Those that show trouble alone end with "> 0": they must parse as they are, and have data without it."""
        count = 0
        for name, board in dashboards().items():
            for title, expression in expressions(board):
                with self.subTest(f"{name}: {title}"):
                    count += 1
                    filled = fill(expression, WASTEFUL)
                    self.prometheus.query(filled)
                    series = self.wait_data(filled.removesuffix(" > 0"))
                    self.assertFalse([one for one in series if one["value"][1] in ("NaN", "+Inf", "-Inf")], filled)
        print(f"{count} queries of {len(dashboards())} dashboards")

    def test_variables_have_values(self) -> None:
        for name, board in dashboards().items():
            for variable in board["templating"]["list"]:
                if match := re.fullmatch(r"label_values\((.+), (\w+)\)", fill(variable.get("definition", ""), GOOD)):
                    values = self.prometheus.ask(f"label/{match[2]}/values", **{"match[]": match[1]})
                    self.assertTrue(values, f"{name}: {variable['name']}")

    def test_what_the_panels_say_is_true(self) -> None:
        board = dashboards()["gradgate-job.json"]
        for job, per_step, wasted in ((GOOD, 1.0, 0.0), (WASTEFUL, 4.0, 0.75)):
            by_title = {title: fill(expression, job) for title, expression in expressions(board)}
            self.assertAlmostEqual(self.value(by_title["Reductions per step"]), per_step, delta=0.15 * per_step)
            self.assertAlmostEqual(self.value(by_title["Allowed per step"]), 1.0, delta=0.15)
            self.assertAlmostEqual(self.value(by_title["Wasted"]), wasted, delta=0.1)
            self.assertAlmostEqual(self.value(by_title["Micro-steps per window"]), 4.0, delta=0.5)
            self.assertEqual(self.value(by_title["Ranks connected"]), 2)
            self.assertEqual(self.value(by_title["Ranks lost or failed"]), 0)
        overview = {title: fill(expression, "") for title, expression in expressions(dashboards()["gradgate-overview.json"])}
        self.assertEqual(self.value(overview["Jobs running"]), 2)
        self.assertEqual(self.value(overview["Daemons that answer"]), 1)

    def test_recorded_series(self) -> None:
        for group in tools.read_yaml(tools.DEPLOY / "prometheus" / "recording.yml")["groups"]:
            for rule in group["rules"]:
                self.wait_data(rule["record"])
        self.assertAlmostEqual(self.value(f'run:gradgate_reductions_issued_per_step:ratio5m{{job_name="{WASTEFUL}"}}'), 4, delta=0.6)

    def test_alert_is_of_the_wasteful_job_alone(self) -> None:
        """After some windows: of the first few, one that is counted while it is open is more than the margin."""
        expected = [("GradgateWastedReductions", WASTEFUL)]

        def reached() -> bool:
            alerts = [(one["metric"]["alertname"], one["metric"].get("job_name")) for one in self.prometheus.query("ALERTS")]
            return alerts == expected

        processes.wait_for(f"just {expected}", reached, deadline_s=20)


if __name__ == "__main__":
    unittest.main(verbosity=2)
