#!/usr/bin/env python3
"""What merging parameter groups saves: an optimizer's step with 465 groups, and with the 28 that they need; its time and its memory.

    python3 bench/torch/param_groups.py [--quick] [--threads N] [--write-readme]

The detector is that of the tests, full-sized, and so narrow that what is left is the cost of a call. Both optimizers hold the same
parameters and gradients and take their steps in turn, 465 28 465 28; a share is of the same round. The A/A interval beside it is that of
the noisier of the two against itself; where the share is not clear of it there is no verdict. Memory is what one step needs beyond what is
there before and after it: of tensors, as torch's allocator counts, and of the process, in a process of its own. Two to three minutes.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import gc
import os
import pathlib
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "shim/python"), str(ROOT / "tests/torch"), str(ROOT / "bench")]

import figures  # noqa: E402
import grouped_model  # noqa: E402
import report  # noqa: E402
import torch  # noqa: E402
from figures import Series  # noqa: E402
from gradgate.param_groups import merge  # noqa: E402

MIB = 1 << 20
README = pathlib.Path(__file__).resolve().parent / "README.md"
IMPLEMENTATIONS: dict[str, dict[str, bool]] = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "AdamW": torch.optim.AdamW,
    "SGD, momentum": lambda groups, **options: torch.optim.SGD(groups, momentum=0.9, **options),
}
CASES = [("AdamW", "for-loop"), ("AdamW", "foreach"), ("AdamW", "fused"), ("SGD, momentum", "foreach"), ("SGD, momentum", "fused")]
Lines = list[tuple[str, ...]]


def model_with_gradients(narrow: bool) -> torch.nn.Module:
    model = grouped_model.build(narrow)
    grouped_model.backward(model, step=0)
    return model


def made(model: torch.nn.Module, optimizer: str, implementation: str, merged: bool) -> torch.optim.Optimizer:
    """With its state, which the first step makes."""
    groups = grouped_model.groups(model)
    found = OPTIMIZERS[optimizer](merge(groups) if merged else groups, **IMPLEMENTATIONS[implementation])
    found.step()
    return found


# --- Time.


def timed(step: Callable[[], Any]) -> tuple[float, float, float]:
    """Milliseconds, of the wall and of all threads; page faults."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    begun, used = perf_counter(), process_time()
    step()
    wall, cpu = perf_counter() - begun, process_time() - used
    return 1e3 * wall, 1e3 * cpu, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before.ru_minflt


@dataclass
class Timed:
    wall: Series = field(default_factory=lambda: Series("wall", "ms", [], []))
    cpu: Series = field(default_factory=lambda: Series("cpu", "ms", [], []))
    faults: Series = field(default_factory=lambda: Series("page faults", "", [], []))

    def take(self, step: Callable[[], Any], half: str) -> None:
        for series, value in zip((self.wall, self.cpu, self.faults), timed(step), strict=True):
            getattr(series, half).append(value)


def in_turn(plain: Callable[[], Any], merged: Callable[[], Any], seconds: float) -> tuple[Timed, Timed]:
    """At least five rounds, however long they take."""
    one, other = Timed(), Timed()
    for step in (plain, merged):  # not timed
        step()
    gc.collect()
    gc.disable()
    end, rounds = perf_counter() + seconds, 0
    while rounds < 5 or (perf_counter() < end and rounds < 400):
        for half in ("samples", "again"):
            one.take(plain, half)
            other.take(merged, half)
        rounds += 1
    gc.enable()
    return one, other


def verdict(share: float, spread: float) -> str:
    if abs(share - 1) <= spread:
        return "none"
    return "faster" if share < 1 else "slower"


def row(model: torch.nn.Module, optimizer: str, implementation: str, size: str, seconds: float) -> tuple[str, ...]:
    plain, merged = (made(model, optimizer, implementation, merged=merged) for merged in (False, True))
    one, other = in_turn(plain.step, merged.step, seconds)
    share, of_cpu = (statistics.median(figures.ratios(*pair)) for pair in ((other.wall, one.wall), (other.cpu, one.cpu)))
    spread = max(figures.noise(one.wall), figures.noise(other.wall))
    faults = f"{one.faults.median:,.0f} → {other.faults.median:,.0f}"
    shown = (f"{one.wall.median:.2f} ms", f"{other.wall.median:.2f} ms", f"{100 * share:.1f} %", f"±{100 * spread:.1f} %")
    return (f"{optimizer}, {implementation}, {size}", *shown, verdict(share, spread), f"{100 * of_cpu:.1f} %", faults)


def scale(model: torch.nn.Module, size: str) -> tuple[str, ...]:
    whole = statistics.median(timed(lambda: grouped_model.backward(model, step=1))[0] for _ in range(7))
    return (f"  forward and backward of two images, for scale, {size}", f"{whole:.2f} ms", "", "", "", "", "", "")


def times(seconds: float) -> Lines:
    lines: Lines = [("step", "465 groups", "28 groups", "28 of 465", "A/A", "verdict", "in CPU time", "page faults")]
    for size, share in (("full-sized", 1.0), ("narrow", 0.25)):
        model = model_with_gradients(size == "narrow")
        for optimizer, implementation in CASES:
            lines.append(row(model, optimizer, implementation, size, share * seconds))
            print("  ".join(lines[-1]), flush=True)
        lines.append(scale(model, size))
    return lines


# --- Memory.


def tensor_bytes(step: Callable[[], Any]) -> int:
    """The most that the step has allocated and not freed at one time, of what it allocates itself."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def status(field: str) -> int:
    """Bytes, of a field that is in kB."""
    lines = pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def resident_bytes(step: Callable[[], Any]) -> int:
    """How much the process's resident memory rises above what it was."""
    ctypes.CDLL(None).malloc_trim(0)  # nothing stays of what earlier steps have freed
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the high-water mark starts from here
    before = status("VmRSS")
    step()
    return max(0, status("VmHWM") - before)


def alone(optimizer: str, implementation: str, merged: bool) -> None:
    """What a process of its own prints."""
    found = made(model_with_gradients(False), optimizer, implementation, merged)
    gc.collect()
    resident = resident_bytes(found.step)
    print(tensor_bytes(found.step), resident)


def memory(threads: int) -> Lines:
    lines: Lines = [("memory of a step, full-sized", "tensors, 465", "28", "resident, 465", "28")]
    for optimizer, implementation in CASES:
        told: list[list[str]] = []
        for merged in (False, True):
            command = [sys.executable, __file__, "--threads", str(threads), "--alone", optimizer, implementation, str(int(merged))]
            env = {**os.environ, "KINETO_LOG_LEVEL": "6"}  # the profiler announces itself otherwise
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True, env=env)
            told.append([f"{int(value) / MIB:.1f} MiB" for value in done.stdout.split()])
        lines.append((f"{optimizer}, {implementation}", *(cell for pair in zip(*told, strict=True) for cell in pair)))
        print("  ".join(lines[-1]), flush=True)
    return lines


# --- The report.


def heading(threads: int) -> str:
    here = report.machine()
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    full, narrow = (grouped_model.elements(grouped_model.build(narrow)) for narrow in (False, True))
    text = f"{date}, {here['cores']} cores of {here['cpu']}, Linux {here['kernel'].split('-')[0]}, torch {torch.__version__}"
    return f"{text}, threads: {threads}; {full:,} elements, narrow {narrow:,}; load of others when it began {os.getloadavg()[0]:.1f}"


def markdown(lines: Lines) -> str:
    rows = [lines[0], ("---",) * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def write_readme(text: str) -> None:
    before, _, rest = README.read_text(encoding="utf-8").partition(report.BEGIN)
    _, found, after = rest.partition(report.END)
    if not found:
        raise SystemExit(f"{README} has no place for results ({report.BEGIN} … {report.END})")
    README.write_text(f"{before}{report.BEGIN}\n{text}\n{report.END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="the step of an optimizer with 465 parameter groups, and with 28")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: shows that everything runs, not what it costs")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch; default: as many as it takes itself")
    parser.add_argument("--write-readme", action="store_true", help="put the tables into bench/torch/README.md")
    parser.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.alone:
        optimizer, implementation, merged = options.alone
        alone(optimizer, implementation, merged == "1")
        return
    head = heading(options.threads)
    print(head)
    text = "\n\n".join([head, markdown(times(1.0 if options.quick else 12.0)), markdown(memory(options.threads))])
    print("\n" + text)
    if options.write_readme:
        write_readme(text)


if __name__ == "__main__":
    main()
