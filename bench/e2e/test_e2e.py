"""The models of a window and their verdicts, and that no node outlives its run. No torch."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import net  # noqa: E402
import planned  # noqa: E402
import predicted  # noqa: E402
import sections  # noqa: E402
from figures import Row, Series  # noqa: E402
from measure import Context  # noqa: E402


def series(milliseconds: float, noise: float = 0.001) -> Series:
    """Ten rounds around a time, none the same."""
    ripple = [1 + noise * (i - 4.5) / 4.5 for i in range(10)]
    return Series("", "ms", [milliseconds * r for r in ripple], [milliseconds * r for r in reversed(ripple)])


def by_name(found: list[Row]) -> dict[str, Row]:
    return {row.what: row for row in found}


class Models(unittest.TestCase):
    """c = 100 ms and s = 110 ms: 840 ms where every micro-step reduces, 510 ms where one does."""

    def replicated(self, window: float, noise: float = 0.001, every: float = 840) -> dict[str, Row]:
        told = {"computing": series(400, noise), "every": series(every, noise), "window": series(window, noise)}
        return by_name(predicted.replicated(told, {"rate": 4e8}, "X", {}, {"window": "window"}, 1.6))

    def test_a_window_as_predicted_meets_all_budgets(self) -> None:
        found = self.replicated(510)
        self.assertAlmostEqual(found["X s / c, and the link"].value or 0, 1.1, 3)
        self.assertAlmostEqual(found["X the model, N·c + s"].value or 0, 510, 0)
        self.assertEqual({r.verdict for r in found.values() if r.budget}, {"met"})

    def test_a_slower_one_misses_them(self) -> None:
        found = self.replicated(540)
        self.assertEqual({r.verdict for r in found.values() if r.budget}, {"MISSED"})
        self.assertAlmostEqual(found["X window, of the model's gain"].value or 0, 510 / 540, 3)
        self.assertEqual(found["X window, faster than every"].measured, "1.56 ×")

    def test_noise_wider_than_the_gate_gives_no_verdict(self) -> None:
        self.assertEqual({r.verdict for r in self.replicated(510, noise=0.2).values() if r.budget}, {"none"})

    def test_nor_does_a_link_that_is_too_fast_or_too_slow(self) -> None:
        for every in (780, 900):
            self.assertEqual({r.verdict for r in self.replicated(510, every=every).values() if r.budget}, {"none"})

    def test_the_parts_of_a_window_that_keeps_parameters(self) -> None:
        """c = 100 ms, a = 50 ms forward and 60 ms backward, g = 70 ms."""
        told = {"computing": series(400), "every": series(1120), "deferred": series(910), "forward_gathers": series(670)}
        for kept, verdict in ((520, "met"), (545, "MISSED")):
            found = by_name(predicted.kept({**told, "kept_by_hand": series(520), "kept": series(kept)}, {"rate": 4e8}))
            self.assertAlmostEqual(found["FSDP2 the model, N·c + a + g"].value or 0, 520, 0)
            self.assertEqual(found["FSDP2 all-gathers forward, backward"].measured, "0.050 s, 0.060 s")
            self.assertEqual(found["FSDP2 kept, of the model's gain"].verdict, verdict)


class Planned(unittest.TestCase):
    """c = 100 ms, a = 50 ms, b = 60 ms, g = 70 ms, r = 80 ms."""

    def told(self) -> dict[str, Series]:
        per = {"computing": 100, "forward": 150, "gathers": 210, "shard_sync": 280, "every_micro_step": 360}
        return {name: series(4 * milliseconds) for name, milliseconds in per.items()}

    def test_parts_are_differences(self) -> None:
        found = planned.parts("hsdp", self.told())
        expected = {"compute": 0.1, "gather-forward": 0.05, "gather-backward": 0.06, "shard-sync": 0.07, "replica-sync": 0.08}
        self.assertEqual({name.removesuffix("-s") for name in found}, set(expected))
        for name, value in expected.items():
            self.assertAlmostEqual(found[f"{name}-s"], value, 6)
        self.assertAlmostEqual(planned.parts("fsdp", self.told())["shard-sync-s"], 0.15, 6)
        self.assertAlmostEqual(planned.parts("ddp", self.told())["sync-s"], 0.26, 6)

    def test_a_part_that_noise_makes_negative_is_nothing(self) -> None:
        self.assertEqual(planned.parts("fsdp", {**self.told(), "forward": series(390)})["gather-forward-s"], 0)

    def test_errors_and_order_are_judged(self) -> None:
        predicted = {"every_micro_step": planned.Prediction(1.44, 1.44, 1.44), "window": planned.Prediction(0.8, 0.8, 0.8)}
        good = planned.compared("X", predicted, {"every_micro_step": series(1440), "window": series(750)})
        self.assertEqual([row.verdict for row in good], ["met", "met", "met"])
        self.assertEqual(good[1].measured, "0.750 s, predicted +6.7 %")
        bad = planned.compared("X", predicted, {"every_micro_step": series(700), "window": series(1440)})
        self.assertEqual([row.verdict for row in bad], ["MISSED", "MISSED", "MISSED"])
        self.assertIn("every_micro_step is faster than window", bad[2].measured)

    def test_open_ends_hold_what_lies_between(self) -> None:
        predicted = {"window": planned.Prediction(1.0, 0.5, 1.0)}
        (inside,) = planned.bounds("X", predicted, {"window": series(700), "other": series(1)})
        (outside,) = planned.bounds("X", predicted, {"window": series(400)})
        self.assertEqual((inside.verdict, outside.verdict), ("met", "MISSED"))
        self.assertEqual(inside.measured, "0.700 s, predicted 0.500 to 1.000 s")


class Skipping(unittest.TestCase):
    def test_no_nodes_is_told(self) -> None:
        with mock.patch.object(net, "unavailable", return_value="network namespaces need root"):
            row = sections.on_two_nodes(Context(HERE, True, sys.executable), "hsdp", 2, {})
        assert isinstance(row, Row)
        self.assertEqual((row.verdict, row.measured), ("skipped", "network namespaces need root"))

    def test_no_torch_is_told(self) -> None:
        for _, section in sections.PART.sections.values():
            (row,) = section(Context(HERE, True, "/nowhere/python"))
            self.assertEqual((row.verdict, row.measured), ("skipped", "no torch in /nowhere/python"))


UNAVAILABLE = net.unavailable()


@unittest.skipIf(UNAVAILABLE is not None, f"no nodes here: {UNAVAILABLE}")
class Nodes(unittest.TestCase):
    def names(self) -> set[str]:
        return {line.split()[0] for line in net.run("ip", "netns", "list").splitlines() if line.startswith(net.PREFIX)}

    def test_nothing_is_left_after_an_error(self) -> None:
        before = self.names()
        with self.assertRaises(ZeroDivisionError), net.Nodes() as nodes:
            self.assertEqual(len(self.names() - before), 2)
            nodes.rate(1e8)
            nodes.rate(2e8)
            raise ZeroDivisionError
        self.assertEqual(self.names() - before, set())

    def test_nothing_is_left_when_the_link_cannot_be_made(self) -> None:
        before = self.names()
        with mock.patch.object(net.Nodes, "address", return_value="nowhere"), self.assertRaises(net.NetworkError), net.Nodes():
            pass
        self.assertEqual(self.names() - before, set())

    def test_what_a_killed_run_left_is_removed(self) -> None:
        maker = subprocess.Popen(["true"])
        maker.wait()
        stale = f"{net.PREFIX}-{maker.pid}-0"
        net.run("ip", "netns", "add", stale)
        with net.Nodes():
            self.assertNotIn(stale, self.names())

    def test_a_process_of_a_node_sees_its_own_link_alone(self) -> None:
        with net.Nodes() as nodes:
            shown = net.run(*nodes.enter(1), "ip", "-brief", "address")
        self.assertIn(nodes.address(1), shown)
        self.assertEqual({line.split()[0].split("@")[0] for line in shown.splitlines()}, {"lo", nodes.interface})

    def test_without_root_it_says_so(self) -> None:
        with mock.patch.object(os, "geteuid", return_value=1000):
            self.assertIn("root", net.unavailable() or "")


if __name__ == "__main__":
    unittest.main()
