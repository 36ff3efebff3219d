"""Whatever befalls the daemon, training does not notice: the same bytes, the same counts, and the next daemon tells all of them.

GRADGATE_CHAOS_SECONDS: how long it lasts, about (60). GRADGATE_TEST_SEED: repeats the faults of a run, as it printed.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import sys
from typing import Any

import case
from case import processes, sources
from chaos import Chaos, in_own_mounts

SECONDS = float(os.environ.get("GRADGATE_CHAOS_SECONDS") or 60)
WORLD, ACCUMULATE, BATCH, IMAGES = 3, 2, 47, 1438
# Six windows an epoch; in the last one rank 0 brings one micro-step and the others none. So slow that gradients never vanish.
SHAPE = ("--accumulate", str(ACCUMULATE), "--lr", "0.0002", *case.EXACT)
MICRO_BATCHES = -(-IMAGES // BATCH)
WINDOWS = -(-MICRO_BATCHES // (WORLD * ACCUMULATE))
CALM_EPOCHS = 50
# Windows that rank 0 stops at afterwards, one after the other, until the last daemon has all ranks: a rank that was turned away
# comes again a minute later.
PAUSES = 90
EXPECTED_LINE = re.compile(r"rank \d  parameters |paused at window \d+$|gradgate: warning \[link_\w+\]: ")
PLANNED = ("windows_full", "windows_partial", "windows_empty", "micro_steps", "steps", "items", "reductions", "suppressed")


def plan(windows: int) -> dict[int, dict[str, int]]:
    """Each rank's counts after this many windows, from the shape alone."""
    ranks = {}
    for rank in range(WORLD):
        counts = dict.fromkeys(PLANNED, 0)
        for window in range(WINDOWS):
            times = windows // WINDOWS + (window < windows % WINDOWS)
            mine = [window * WORLD * ACCUMULATE + step * WORLD + rank for step in range(ACCUMULATE)]
            samples = [min(BATCH, IMAGES - batch * BATCH) for batch in mine if batch < MICRO_BATCHES]
            kind = "full" if len(samples) == ACCUMULATE else "partial" if samples else "empty"
            counts[f"windows_{kind}"] += times
            counts["micro_steps"] += times * len(samples)
            counts["items"] += times * sum(samples)
            counts["suppressed"] += times * max(len(samples) - 1, 0)
        counts["steps"] = counts["reductions"] = windows
        ranks[rank] = counts
    return ranks


def step_us(report: Any) -> float:
    rank = report["ranks"][0]
    return 1e6 * float(rank["train_seconds"]) / int(rank["counted"]["steps"])


class ChaosBesideTheTrainer(case.SystemCase):
    def setUp(self) -> None:
        super().setUp()
        self.open_before = len(os.listdir("/proc/self/fd"))

    def alone(self, epochs: int) -> str:
        """The hash of one undisturbed process that does the work of all ranks."""
        report = self.train("--as-world", str(WORLD), "--epochs", str(epochs), *SHAPE, *case.NO_DAEMON)
        return self.one_hash(report)

    def left(self) -> list[str]:
        """Living processes of this test."""
        commands = {entry.parent.name: self.command_line(entry) for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline")}
        return [f"{pid}: {command}" for pid, command in commands.items() if str(self.folder) in command]

    @staticmethod
    def command_line(entry: pathlib.Path) -> str:
        try:
            return entry.read_text().replace("\0", " ")
        except OSError:
            return ""

    @staticmethod
    def ranks_open(trainer: processes.Process) -> dict[str, list[str]]:
        """What each rank holds open, by pid."""
        pid = trainer.popen.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {child: [os.readlink(fd) for fd in pathlib.Path(f"/proc/{child}/fd").iterdir()] for child in children}

    def all_connected(self, chaos: Chaos, trainer: processes.Process, pauses: range) -> int:
        """Window by window until the daemon has all ranks; returns how many windows that took."""
        for window in pauses:
            try:
                processes.wait_for("all ranks are connected", lambda: chaos.connected() == WORLD, 1.0)
            except TimeoutError:
                trainer.say()
                trainer.wait_line(f"paused at window {window + 1}")
            else:
                return window - pauses.start
        connected = f"{chaos.connected()} of {WORLD} ranks are connected, {len(pauses)} s after the last fault"
        raise AssertionError(f"{connected}:\n{trainer.output}")

    def assert_reads_the_live_run(self, chaos: Chaos, window: int) -> None:
        """Rank 0 stands before this window, the others in it."""
        expected = {rank: counts["steps"] for rank, counts in plan(window).items()}

        def told() -> sources.Ranks | None:
            ranks = sources.from_ctl(chaos.daemon.status(chaos.job))
            return ranks if {rank: counts["steps"] for rank, counts in ranks.items()} == expected else None

        live = processes.wait_for(f"each rank has {window} steps", told)
        self.assertEqual({name: live[0][name] for name in PLANNED}, plan(window)[0])

    def assert_planned(self, report: Any, windows: int) -> None:
        counted = sources.from_loop(report)
        self.assertEqual({rank: {name: counts[name] for name in PLANNED} for rank, counts in counted.items()}, plan(windows))
        for rank in report["ranks"]:
            counts = counted[rank["rank"]]
            self.assertEqual(counts["collectives"], windows * rank["bucket_count"])
            self.assertEqual(counts["bytes"], windows * rank["parameter_count"] * 8)
            self.assertEqual(rank["stats"]["windows_late"], counts["windows_empty"])  # reduced at the step, as zeros
            for name in ("windows_unstepped", "windows_mismatched", "windows_disagreed", "refused"):
                self.assertEqual(rank["stats"][name], 0, name)

    def train_through(self, chaos: Chaos, number: int, epochs: int) -> Any:
        """One run of the trainer, from before the first fault until the last daemon has told its end. Returns its report."""
        last = epochs * WINDOWS - 1
        done = last - PAUSES
        job, path = f"{self.job}-{number}", self.folder / f"report-{number}.json"
        pauses = ",".join(map(str, (1, *range(done, last + 1))))
        options = ("--epochs", str(epochs), "--pause-at-window", pauses, "--deadline", "120", "--job", job)
        files = ("--report", str(path), "--daemon-dir", chaos.daemon.directory)
        with processes.trainer(self.binaries, "--ranks", str(WORLD), *SHAPE, *options, *files) as trainer:
            trainer.wait_line("paused at window 1")  # by now all ranks have all that they will open, the daemon's socket included
            open_before = self.ranks_open(trainer)
            trainer.say()
            chaos.run(trainer, job, f"paused at window {done}", deadline_s=4 * SECONDS + 60)

            chaos.killed()
            waited = self.all_connected(chaos, trainer, range(done, last))
            for window in range(done + waited + 1, last + 1):
                trainer.say()
                trainer.wait_line(f"paused at window {window}")
            self.assert_reads_the_live_run(chaos, last)
            for pid, held in self.ranks_open(trainer).items():
                self.assertEqual(len(held), len(open_before[pid]), f"{open_before[pid]} became {held}")
            trainer.say()
            self.assertEqual(trainer.finish(), 0, trainer.output)

        report = case.read_report(path)
        status = chaos.daemon.wait_state(job, "FINISHED")
        self.assertEqual([line for line in trainer.lines if not EXPECTED_LINE.match(line)], [])
        told_once = collections.Counter(re.findall(r"warning \[(link_\w+)\]", trainer.output))
        self.assertTrue(all(count <= WORLD * (5 if code == "link_rejected" else 1) for code, count in told_once.items()), told_once)
        self.assert_planned(report, last + 1)
        self.assert_counts_agree(
            loop=sources.from_loop(report),
            library=sources.from_library(report),
            ctl=sources.from_ctl(status),
            metrics=sources.from_metrics(chaos.daemon.scrape(), status["job"]["run_id"]),
        )
        self.assertEqual(self.one_hash(report), self.alone(epochs))
        reconnects = {rank["rank"]: int(rank["totals"]["reconnect_count"]) for rank in status["ranks"]}
        self.assertTrue(all(count > 0 for count in reconnects.values()), f"the daemon was never missed: {reconnects}")
        figures = {"windows": last + 1, "step_us": round(step_us(report)), "hash": self.one_hash(report), "reconnects": reconnects}
        print(f"run {number}: {figures}, {waited} windows until all were connected, {dict(told_once)}", file=sys.stderr, flush=True)
        return report

    def test_daemon_in_all_weathers(self) -> None:
        calm = self.train("--ranks", str(WORLD), *SHAPE, "--epochs", str(CALM_EPOCHS), *case.NO_DAEMON)
        self.assertEqual(self.one_hash(calm), self.alone(CALM_EPOCHS))
        print(f"undisturbed: {step_us(calm):.0f} us a step", file=sys.stderr)
        with Chaos(self.binaries, self.folder / "run") as chaos:
            with self.subTest("a disk of its own"):
                why = chaos.mount() if "GRADGATE_OWN_MOUNTS" in os.environ else "no mount namespace of its own here"
                if why:
                    self.skipTest(f"the disk is never full: {why}")
            print(f"GRADGATE_TEST_SEED={chaos.seed}", file=sys.stderr, flush=True)
            chaos.start()
            seconds, number, report = 0.0, 0, calm
            # How fast the next run will be on a machine with other work is a guess; what is missing at its end the next one adds.
            while seconds < 0.95 * SECONDS:
                wanted = max(0.7 * (SECONDS - seconds), 10)
                epochs = max(round(wanted / (step_us(report) * 1e-6 * WINDOWS)), 2 * PAUSES // WINDOWS)
                report = self.train_through(chaos, number, epochs)
                seconds += report["ranks"][0]["train_seconds"]
                number += 1
            chaos.terminate(chaos.daemon)
        self.assertEqual(self.left(), [])
        self.assertEqual(len(os.listdir("/proc/self/fd")), self.open_before)
        print(f"{seconds:.0f} s, {number} runs: {json.dumps(chaos.counts, indent=1)}", file=sys.stderr)


if __name__ == "__main__":
    in_own_mounts([sys.executable, "-B", *sys.argv])
    case.main()
