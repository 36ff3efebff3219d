"""What is measured end to end: one function per section of the table. Each starts ranks and returns rows."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "examples/demo")]
import figures  # noqa: E402
import net  # noqa: E402
import planned  # noqa: E402
import predicted  # noqa: E402
import processes  # noqa: E402
import ranks  # noqa: E402
import report  # noqa: E402
from figures import Row, Series  # noqa: E402
from measure import Context  # noqa: E402

SHARE = (1.06, 1.18)  # of s/c, when the link is chosen: inside of 1.0 to 1.2, with room for the machine's drift
# Resident memory is what is in use only if what is freed goes back to the kernel.
RETURNING = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}


def has_torch(context: Context) -> bool:
    probe = [context.torch_python, "-c", "import torch, torch.distributed as d; assert d.is_gloo_available()"]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(probe, capture_output=True, check=False, timeout=120).returncode == 0
    return False


def needs_torch(section: Callable[[Context], list[Row]]) -> Callable[[Context], list[Row]]:
    def or_skipped(context: Context) -> list[Row]:
        if has_torch(context):
            return section(context)
        return [figures.skipped(f"{section.__name__}, end to end", f"no torch in {context.torch_python}")]

    return or_skipped


def launcher(context: Context) -> ranks.Launcher:
    return ranks.Launcher(context.torch_python, context.build_dir)


def on_two_nodes(
    context: Context, job: str, ranks_per_node: int, options: Mapping[str, object]
) -> tuple[dict[str, Series], dict[str, float]] | Row:
    """What the job measured, or the row that says why it cannot be."""
    why = net.unavailable()
    if why:
        return figures.skipped(f"{job}, two nodes", why)
    with net.Nodes() as nodes:
        answers = {"rate": lambda rate: nodes.rate(float(rate))}
        return launcher(context).launch(job, options, ranks.Place(nodes, ranks_per_node), answers)


@needs_torch
def hsdp(context: Context) -> list[Row]:
    options = {"layers": 8, "width": context.rounds(512, 256), "batch": 128, "share": SHARE, "rate": 4e8}
    measured = on_two_nodes(context, "hsdp", 2, {**options, **turns(context, 10)})
    if isinstance(measured, Row):
        return [measured]
    by_hand = {"replica_by_hand": "replica by hand", "window_by_hand": "window by hand"}
    gated = {"replica": "window_replica", "window": "window"}
    return predicted.replicated(*measured, "HSDP", by_hand, gated, 1.60)


@needs_torch
def ddp(context: Context) -> list[Row]:
    options = {"layers": 8, "width": context.rounds(512, 256), "batch": 256, "share": SHARE, "rate": 8e8}
    measured = on_two_nodes(context, "ddp", 1, {**options, **turns(context, 12)})
    if isinstance(measured, Row):
        return [measured]
    return predicted.replicated(*measured, "DDP", {"by_hand": "no_sync by hand"}, {"window": "window"}, None)


@needs_torch
def fsdp(context: Context) -> list[Row]:
    options = {"layers": 8, "width": context.rounds(512, 256), "batch": 256, "share": (1.6, 2.4), "rate": 8e8}
    measured = on_two_nodes(context, "fsdp", 1, {**options, **turns(context, 10)})
    return [measured] if isinstance(measured, Row) else predicted.kept(*measured)


@needs_torch
def plan(context: Context) -> list[Row]:
    why = net.unavailable()
    if why:
        return [figures.skipped("plan, two nodes", why)]
    found = []
    for shape, ranks_per_node, shards, batch in (("ddp", 1, 1, 256), ("fsdp", 1, 2, 256), ("hsdp", 2, 2, 128)):
        options = {"shape": shape, "layers": 8, "width": context.rounds(512, 256), "batch": batch, "share": (1.2, 2.0), "rate": 8e8}
        measured = {**options, **turns(context, 8), "windows": context.rounds(20, 6)}
        found += planned_shape(context, shape, ranks_per_node, shards, measured)
    return found


def planned_shape(context: Context, shape: str, ranks_per_node: int, shards: int, options: Mapping[str, object]) -> list[Row]:
    planner = planned.Planner(context.build_dir)
    from_job: dict[str, planned.Prediction] = {}
    with net.Nodes() as nodes, restarted(context) as (daemon, directory):
        daemon.become("alive")
        answers = {"rate": lambda rate: nodes.rate(float(rate)), "plan": lambda _: from_job.update(planner.from_job(directory))}
        place = ranks.Place(nodes, ranks_per_node)
        told, single = launcher(context).launch("parts", options, place, answers, {"GRADGATE_DIR": directory})
    label = shape.upper()
    return [
        figures.told(f"{label} link", f"{single['rate'] / 1e6:.0f} Mbit/s"),
        *planned.told(label, shape, told),
        *planned.compared(f"{label} parts:", planner.from_parts(shape, told, place.world, shards), told),
        *planned.bounds(f"{label} job:", from_job, told),
        figures.told(f"{label} job: its own windows, later", f"{told['job'].median / 1000:.3f} s", None, figures.noise(told["job"])),
    ]


def turns(context: Context, full: int) -> dict[str, int]:
    return {"rounds": context.rounds(full, 2), "calibration_rounds": context.rounds(3, 1), "calibrations": context.rounds(6, 2)}


@needs_torch
def loopback(context: Context) -> list[Row]:
    sizes = [
        {"name": "long", "layers": 8, "width": 512, "batch": 128, "rounds": context.rounds(120, 6), "times": 1},
        {"name": "short", "layers": 4, "width": 128, "batch": 96, "rounds": context.rounds(400, 20), "times": 2},
    ]
    options: dict[str, Any] = {"sizes": sizes, "micro_steps": 100, "micro_step_rounds": context.rounds(600, 60)}
    told, single = launcher(context).launch("loopback", options, ranks.Place(None, 2), {})
    found = micro_steps(told, options["micro_steps"])
    for name in ("long", "short"):
        by_hand, gated = told[f"{name}_by_hand"], told[f"{name}_gradgate"]
        took = by_hand.median / single[f"{name}_windows_per_turn"]
        noise = figures.noise(by_hand)
        found.append(figures.told(f"{name} window, no_sync by hand", f"{took:.3g} ms", took, noise))
        ratios = figures.ratios(gated, by_hand)
        extra = 1000 * took * (statistics.median(ratios) - 1)
        found.append(figures.no_slower(f"{name} window, gradgate, of by hand", ratios, 1.005, 0.005, noise, f" {extra:+.0f} µs"))
        cpu = statistics.median(figures.ratios(told[f"{name}_gradgate_cpu"], told[f"{name}_by_hand_cpu"]))
        found.append(figures.told(f"  {name} window, the same in CPU time", f"{100 * cpu:.1f} %", cpu))
    return found


def micro_steps(told: Mapping[str, Series], times: int) -> list[Row]:
    """Enter and exit of one context, loop and `with` included."""

    def each(name: str) -> Series:
        series = told[name]
        return Series(name, "µs", [1000 * v / times for v in series.samples], [1000 * v / times for v in series.again])

    nothing, no_sync, on_ddp, on_fsdp = map(each, ("with_nothing", "with_no_sync", "with_ddp", "with_fsdp"))
    return [
        figures.told("a context that does nothing", f"{nothing.median:.2f} µs", nothing.median, figures.noise(nothing)),
        figures.told("DDP.no_sync(), enter and exit", f"{no_sync.median:.2f} µs", no_sync.median, figures.noise(no_sync)),
        figures.at_most("micro_step(), enter and exit, DDP", on_ddp.median, "µs", 1.5, figures.noise(on_ddp)),
        figures.at_most("micro_step(), enter and exit, FSDP2", on_fsdp.median, "µs", 2, figures.noise(on_fsdp)),
    ]


class Restarted:
    """A daemon that is brought into a state by name."""

    def __init__(self, binaries: processes.Binaries, directory: str) -> None:
        self._binaries, self._directory = binaries, directory
        self._daemon: processes.Daemon | None = None

    def become(self, state: str) -> None:
        if state == "alive" and self._daemon is None:
            self._daemon = processes.Daemon(self._binaries, self._directory)
        assert self._daemon
        if state == "stopped":
            self._daemon.process.signal(signal.SIGSTOP)
        if state == "killed":
            self.end()

    def end(self) -> None:
        if self._daemon:
            self._daemon.process.__exit__()
        self._daemon = None


@contextlib.contextmanager
def restarted(context: Context) -> Iterator[tuple[Restarted, str]]:
    with tempfile.TemporaryDirectory() as directory:
        daemon = Restarted(processes.Binaries(context.build_dir), directory)
        try:
            yield daemon, directory
        finally:
            daemon.end()


@needs_torch
def tap(context: Context) -> list[Row]:
    """bench/torch/tap.py, a process by itself: collectives that send nothing, with and without the tap."""
    script = str(HERE.parent / "torch/tap.py")
    found = []
    for kind, backend, limit in (("native", "fake", 0.5), ("python", "gloo", None)):
        env = {**os.environ, **launcher(context).environment()}
        command = [context.torch_python, "-B", script, kind, str(context.rounds(300, 40))]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
        told = {name: series.samples + series.again for name, series in figures.parse(done.stdout.splitlines()).items()}
        without = told[f"{backend} without"]
        beyond = [(a - b) / 1000 for a, b in zip(told[f"{backend} bound"], without, strict=True)]
        value = statistics.median(beyond)
        low, high = figures.interval([(a - b) / 1000 / value for a, b in zip(told[f"{backend} without again"], without, strict=True)])
        spread = max(high, -low)
        what = f"{kind} tap, counting a collective"
        if limit:
            found.append(figures.at_most(what, value, "µs", limit, spread))
        else:
            found.append(figures.told(what, f"{value:.3g} µs", value, spread))
    return found


@needs_torch
def training(context: Context) -> list[Row]:
    options = {"layers": 4, "width": 128, "batch": 96, "times": context.rounds(20, 5), "rounds": context.rounds(12, 2)}
    with restarted(context) as (daemon, directory):
        answers = {"daemon": daemon.become}
        told, _ = launcher(context).launch("daemon", options, ranks.Place(None, 2), answers, {"GRADGATE_DIR": directory})
    alive = told["alive"]
    found = [figures.told("training, daemon alive", f"{alive.median:.3g} ms", alive.median, figures.noise(alive))]
    for state in ("stopped", "killed"):
        ratios = figures.ratios(told[state], alive)
        found.append(figures.no_difference(f"training, daemon {state}, of alive", ratios, 0.05, figures.noise(alive)))
    return found


@needs_torch
def memory(context: Context) -> list[Row]:
    options = {"layers": 16, "width": context.rounds(768, 384), "batch": 8}
    _, single = launcher(context).launch("memory", options, ranks.Place(None, 4), {}, RETURNING)
    names = {
        "every": "every micro-step",
        "replica_by_hand": "all-reduce deferred by hand",
        "window_by_hand": "window by hand",
        "replica": "gradgate, window_replica",
        "window": "gradgate, window",
        "kept": "gradgate, window, parameters kept",
    }
    return [figures.told("memory, all gradients, unsharded", f"{single['gradients']:.0f} MiB", single["gradients"])] + [
        figures.told(f"memory, {what}", f"{single[name]:.0f} MiB", single[name]) for name, what in names.items() if name in single
    ]


PART = report.Part(
    "e2e",
    {
        "hsdp": ("HSDP 2 × 2, two nodes, window of 4", hsdp),
        "ddp": ("DDP 2 × 1, two nodes, window of 4", ddp),
        "fsdp": ("FSDP2 2 × 1, two nodes, window of 4", fsdp),
        "plan": ("The planner, two nodes, window of 4", plan),
        "loopback": ("gradgate's own time, DDP on loopback", loopback),
        "tap": ("The tap, a collective that sends nothing", tap),
        "training": ("Training and its daemon", training),
        "memory": ("Peak of a window over rest, HSDP 2 × 2", memory),
    },
    HERE,
)
