"""What is measured: one function per section of the table. Each runs programs and returns rows."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import figures
from figures import Row, Series

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples/demo"))
import processes  # noqa: E402  (the demo's: children with deadlines)

DEADLINE_S = 900.0
NO_DAEMON = "/nonexistent"  # a directory in which no daemon listens


class Context:
    def __init__(self, build_dir: pathlib.Path, quick: bool, torch_python: str) -> None:
        self.build_dir = build_dir
        self.quick = quick
        self.torch_python = torch_python

    @property
    def binaries(self) -> processes.Binaries:
        return processes.Binaries(self.build_dir, "digits")

    def program(self, name: str) -> str:
        return str(self.build_dir / "bench" / name)

    def series(self, name: str, *arguments: object, said: str = "") -> dict[str, Series]:
        """What the program prints, which reads `said`."""
        command = [self.program(name), *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, input=said, text=True, timeout=DEADLINE_S, check=True)
        return figures.parse(done.stdout.splitlines())

    def rounds(self, full: int, quick: int) -> int:
        return quick if self.quick else full


# --- The hot path.


def decision(context: Context) -> list[Row]:
    told = context.series("bench_micro", context.rounds(300, 40))
    clock, event, engine = told["clock"], told["event_clock"], told["engine"]
    rows = [
        figures.told("clock_gettime, for scale", f"{clock.median:.1f} ns", clock.median, figures.noise(clock)),
        figures.told("window engine alone, begin + end", f"{engine.median:.1f} ns", engine.median, figures.noise(engine)),
    ]
    for world in (1, 2):
        pair = told[f"micro_step_{world}"]
        own = [p - 2 * e for p, e in zip(pair.samples + pair.again, event.samples + event.again, strict=False)]
        spread = figures.noise(pair) * pair.median / max(statistics.median(own), 1e-9)
        rows += [
            figures.at_most(f"decision through the C ABI, world {world} ¹", statistics.median(own), "ns", 20, spread),
            figures.at_most(f"  begin + end, both events in it, world {world}", pair.median, "ns", 220, figures.noise(pair)),
            calls(f"  system calls in 200,000, world {world}", told[f"micro_step_{world}_system_calls"].samples[0]),
        ]
    return rows + events(told)


def calls(what: str, count: float) -> Row:
    if count < 0:
        return figures.skipped(what, "no seccomp here")
    return Row(what, "0", f"{count:.0f}", None, "met" if count == 0 else "MISSED", None)


def events(told: dict[str, Series]) -> list[Row]:
    with_clock, bare, two = told["event_clock"], told["event"], told["event_clock_two_threads"]
    tail, clock_tail = told["event_clock_p999"], told["clock_p999"]
    ratio = statistics.median(figures.ratios(with_clock, told["clock"]))
    rows = [
        figures.at_most("event with the clock, median", with_clock.median, "ns", 100, figures.noise(with_clock)),
        figures.told("  of that, over the clock alone", f"× {ratio:.2f}", ratio),
        figures.at_most("event without the clock", bare.median, "ns", 25, figures.noise(bare)),
        figures.at_most("event, 99.9 % of them", tail.median, "ns", 1000, figures.noise(tail)),
        figures.told("  the clock alone, 99.9 %", f"{clock_tail.median:.0f} ns", clock_tail.median),
    ]
    if two.samples and two.again:
        rows.append(figures.at_most("event with the clock, two threads", two.median, "ns", 200, figures.noise(two)))
    else:
        rows.append(figures.skipped("event with the clock, two threads", "no second core"))
    return [*rows, calls("system calls in 200,000 events", told["event_system_calls"].samples[0])]


# --- The reducer.


def reducer(context: Context) -> list[Row]:
    rows = []
    for mib in (1, 8, 64):
        told = context.series("bench_reducer", context.rounds({1: 300, 8: 100, 64: 25}[mib], 6), mib)
        for ours, raw, what, limit in (
            ("views_sum", "raw", "views, sum, of Gloo's rate", 0.95),
            ("views_mean", "raw", "views, mean, of Gloo's rate", 0.95),
            ("views_mean", "raw_mean", "of Gloo's, ballot and division ³", None),
            ("copies", "raw_copies", "copies, of Gloo's with copies ³", None),
        ):
            ours_series, raw_series = told[f"{ours}_{mib}mib"], told[f"{raw}_{mib}mib"]
            values = figures.ratios(raw_series, ours_series)
            note = f" {ours_series.median:.3g} ms"
            label = f"{mib} MiB {what}"
            if limit:
                rows.append(figures.at_least_ratio(label, values, limit, 1 - limit, figures.noise(raw_series), note))
            else:
                value = statistics.median(values)
                rows.append(figures.told(label, f"{100 * value:.1f} %{note}", value, figures.noise(raw_series)))
        cpu = statistics.median(figures.ratios(told[f"raw_{mib}mib_cpu"], told[f"views_mean_{mib}mib_cpu"]))
        rows.append(figures.told(f"{mib} MiB   views, mean, in CPU time", f"{100 * cpu:.1f} %", cpu))
    return rows


def torch_ddp(context: Context) -> list[Row]:
    what = "copies, against torch DDP over Gloo"
    probe = [context.torch_python, "-c", "import torch, torch.distributed as d; assert d.is_gloo_available()"]
    try:
        found = subprocess.run(probe, capture_output=True, check=False, timeout=120).returncode == 0
    except FileNotFoundError:
        found = False
    if not found:
        return [figures.skipped(what, f"no torch in {context.torch_python}")]
    script = str(pathlib.Path(__file__).with_name("torch_ddp.py"))
    library = str(context.build_dir / "lib/libgradgate.so")
    rows = []
    for mib in (1, 8, 64):
        command = [context.torch_python, script, library, str(context.rounds(30 if mib < 64 else 15, 5)), str(mib)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=True)
        told = figures.parse(done.stdout.splitlines())
        values = figures.ratios(told["gradgate"], told["ddp"])
        note = f" {told['gradgate'].median:.3g} ms"
        rows.append(figures.no_slower(f"{mib} MiB {what}", values, 1.0, 0.05, figures.noise(told["ddp"]), note))
    return rows


# --- The daemon.


def cpu_ns(pid: int) -> int:
    """What all threads have computed so far."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def memory_mib(pid: int, field: str) -> float:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/{pid}/status")


def daemon(context: Context) -> list[Row]:
    return [
        *clients(context, 16, 1, cpu_limit=1, memory_limit=32, scraped=True),
        *clients(context, 128, 1, memory_limit=64),
        *clients(context, 128, 64, memory_limit=64),
    ]


def clients(
    context: Context, ranks: int, jobs: int, *, memory_limit: float, cpu_limit: float | None = None, scraped: bool = False
) -> list[Row]:
    """What a daemon costs that serves so many ranks of so many jobs, each recording 1,000 events a second."""
    who = f"{ranks} ranks" if jobs == 1 else f"{jobs} jobs of {ranks // jobs} ranks"
    with tempfile.TemporaryDirectory() as directory, processes.Daemon(context.binaries, directory) as gradgated:
        pid = gradgated.process.popen.pid
        with processes.Process([context.program("bench_clients"), directory, str(ranks), "1000", str(jobs)]) as running:
            running.wait_line("linked")
            begun = time.monotonic()
            time.sleep(1)  # the first polls map the pages
            shares = []
            for _ in range(context.rounds(4, 2)):
                before, at = cpu_ns(pid), time.monotonic()
                time.sleep(context.rounds(10, 5))
                shares.append((cpu_ns(pid) - before) / (time.monotonic() - at) / 1e9)
            share = statistics.median(shares)
            spread = max(max(shares) / share - 1, 1 - min(shares) / share)
            label = f"CPU of a core, {who} at 1,000 events/s"
            if cpu_limit:
                rows = [figures.at_most(label, 100 * share, "%", cpu_limit, spread)]
            else:
                rows = [figures.told(label, f"{100 * share:.2f} %", 100 * share, spread)]
            more = scrape(context, gradgated) if scraped else []
            rss, own = memory_mib(pid, "VmRSS"), memory_mib(pid, "RssAnon")
            rows.append(figures.at_most(f"resident memory, {who}", rss, "MiB", memory_limit, None, f" ({own:.0f} own)"))
            elapsed = time.monotonic() - begun
            running.finish()
            sent = int(running.lines[-1].split()[1])
            rows.append(figures.told(f"  events that came, {who}", f"{sent / ranks / elapsed:.0f} /s a rank"))
    return [*rows, *more]


def scrape(context: Context, gradgated: processes.Daemon) -> list[Row]:
    took = Series("scrape", "ms", [], [])
    size = 0
    for number in range(context.rounds(200, 40)):
        begin = time.perf_counter()
        with urllib.request.urlopen(gradgated.metrics_url, timeout=30) as answer:
            size = len(answer.read())
        (took.again if number % 2 else took.samples).append(1000 * (time.perf_counter() - begin))
    return [
        figures.at_most("/metrics, 16 ranks, time of a scrape", took.median, "ms", 5, figures.noise(took)),
        figures.at_most("/metrics, 16 ranks, size", size / 1000, "KB", 200, None),
    ]


# --- The step.


def step(context: Context) -> list[Row]:
    rows = []
    for hidden, batch, full in ((128, 8, 200), (1024, 32, 30)):
        told = run_steps(context, hidden, batch, context.rounds(full, 10))
        hand, again, absent = told["hand"], told["hand_again"], told["absent"]
        both = Series("hand", "ms", hand.samples, again.samples)
        spread = figures.noise(both)
        model = f"{hidden} hidden, batch {batch}"
        rows.append(figures.told(f"by hand, {model}", f"{both.median:.3g} ms", both.median, spread))
        rows.append(figures.no_slower(f"  {hidden} hidden with gradgate, of by hand", figures.ratios(absent, hand), 1.005, 0.005, spread))
        cpu = statistics.median(figures.ratios(told["absent_cpu"], told["hand_cpu"]))
        rows.append(figures.told(f"  {hidden} hidden, the same in CPU time", f"{100 * cpu:.1f} %", cpu))
        for arm in ("alive", "stopped", "killed"):
            rows.append(
                figures.no_difference(f"  {hidden} hidden, daemon {arm}, of absent", figures.ratios(told[arm], absent), 0.05, spread)
            )
    return rows


def ballot(context: Context) -> list[Row]:
    """A window with its ballot against one whose ballot is answered in the process."""
    rows = []
    for world in (2, 4):
        for hidden, batch, full in ((128, 8, 200), (1024, 32, 30)):
            arms = [f"{arm}={NO_DAEMON}" for arm in ("ballot", "ballot_again", "no_ballot")]
            told = context.series("bench_step", world, hidden, batch, context.rounds(full, 10), *arms, said="\n" * 100_000)
            both = Series("ballot", "ms", told["ballot"].samples, told["ballot_again"].samples)
            spread, model = figures.noise(both), f"{world} ranks, {hidden} hidden, batch {batch}"
            rows.append(figures.told(f"window without ballots, {model}", f"{told['no_ballot'].median:.3g} ms", told["no_ballot"].median))
            values = figures.ratios(told["ballot"], told["no_ballot"])
            rows.append(figures.no_difference(f"  with its ballot, of without, {model}", values, 0.05, spread))
            cpu = statistics.median(figures.ratios(told["ballot_cpu"], told["no_ballot_cpu"]))
            rows.append(figures.told(f"  the same in CPU time, {model}", f"{100 * cpu:.1f} %", cpu))
    return rows


def run_steps(context: Context, hidden: int, batch: int, rounds: int) -> dict[str, Series]:
    """Each arm with gradgate has a daemon of its own; before a block of `alive` that daemon is let go, after it stopped."""
    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as stack:
        folders = {arm: f"{root}/{arm}" for arm in ("absent", "alive", "stopped", "killed")}
        for folder in folders.values():
            os.mkdir(folder)
        daemons = {a: stack.enter_context(processes.Daemon(context.binaries, folders[a])) for a in ("alive", "stopped", "killed")}
        command = [context.program("bench_step"), "2", str(hidden), str(batch), str(rounds)]
        program = stack.enter_context(processes.Process([*command, *(f"{arm}={folder}" for arm, folder in folders.items())]))
        program.wait_line("ready", DEADLINE_S)
        for arm, state in {"absent": "alone", "alive": "linked", "stopped": "linked", "killed": "linked"}.items():
            if f"arm {arm} {state}" not in program.lines:
                raise RuntimeError(f"the daemon of arm {arm} is not as wanted ({state}):\n{program.output}")
        daemons["stopped"].process.signal(signal.SIGSTOP)
        daemons["alive"].process.signal(signal.SIGSTOP)
        daemons["killed"].kill()
        program.say()
        for _ in range(rounds * (2 + len(folders))):
            arm = program.wait_line("block ", DEADLINE_S).split()[1]
            daemons["alive"].process.signal(signal.SIGCONT if arm == "alive" else signal.SIGSTOP)
            program.say()
        program.finish()
        return figures.parse(program.lines)
