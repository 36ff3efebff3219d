"""What a run has cost, told when its process ends: a page on standard error of rank 0, and JSON where that was asked for."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import explain, trial

if TYPE_CHECKING:
    from .observed import Observed
    from .observer import Observer


def of(one: Observed) -> dict[str, Any]:
    """The figures of one attachment, of this rank."""
    tally = one.tally
    if not one.sync.window.micro_steps:  # else the last window has not been stepped on, and is none
        tally.end()
    stats, prediction = one.sync.stats(), one.sync.window.job.prediction
    windows = tally.windows
    other = {op: count - stats["gradient"].get(op, 0) - stats["ours"].get(op, 0) for op, count in stats["collectives"].items()}
    enforced = stats["enforcement"] == "enforce"
    return {
        "model": [type(model).__name__ for model in one.models],
        "optimizer": [type(optimizer).__name__ for optimizer in one.optimizers],
        "wrappers": one.kinds,
        "enforcement": stats["enforcement"],
        "windows": windows,
        "window_sizes": {str(size): count for size, count in sorted(tally.sizes.items())},
        "micro_steps": stats["micro_steps"],
        "reductions": tally.reductions + (stats["late"] if enforced else 0),
        "reducing_micro_steps": {str(place): count for place, count in sorted(tally.reducing.items())},
        "wasted": tally.wasted,
        "unreduced": 0 if enforced else tally.unreduced,
        "late": stats["late"],
        "suppressed": stats["suppressed"],
        "mode": stats["mode"],
        "deferring": _deferring(one) if enforced else "",
        "ours": sum(stats["ours"].values()),
        "before": one.before,
        "never": one.never,
        "predicted": prediction and {"micro_steps": prediction.micro_steps, "hits": prediction.hits, "outrun": prediction.outrun},
        "mismatched": stats["windows_mismatched"],
        "busy_ns": tally.busy_ns,
        "wasted_ns": tally.wasted_ns,
        "given_up": one.given_up,
        "gradient_collectives": stats["gradient_collectives"],
        "gradient_bytes": stats["bytes"],
        "other_collectives": {op: count for op, count in other.items() if count},
        "told": stats["told"],
        "unseen": list(stats["unseen"]),
        "seeing": stats["tap"]["seeing"],
        "explain": one.explained and {**one.explained, **explain.in_force(one)},
        "trial": one.trial and trial.verdict(one.trial),
    }


def _deferring(one: Observed) -> str:
    """Why more is not deferred."""
    job = one.sync.window.job
    if job.mode == "window" or one.trial is not None:
        return ""
    if os.environ.get("GRADGATE_RUN_MODE") != "auto":
        return f"mode {job.mode}, as asked"
    room = "no memory limit is known here to compare with" if getattr(job.ladder, "unlimited", False) else "no room for more has been seen"
    return f"mode auto stays at {job.mode}: {room}; --mode window defers all, held unsharded"


def _rate(count: float, windows: int) -> str:
    return f"{count / windows:.2f}" if windows else "-"


def _page(figures: dict[str, Any]) -> list[str]:
    windows = figures["windows"]
    if figures["trial"] and figures["trial"]["over"]:
        return []  # told when it was
    what = f"{'+'.join(figures['wrappers'])} · {', '.join(figures['model'])} · {', '.join(figures['optimizer'])}"
    if not windows:
        return [f"gradgate: {what}: one optimizer step or none after gradgate had found it; nothing to tell"]
    each, least = figures["reductions"] / windows, 0 if figures["unreduced"] == windows else 1
    sizes = ", ".join(f"{count} steps of {size}" for size, count in figures["window_sizes"].items())
    at = [f"{place}: {count}" for place, count in figures["reducing_micro_steps"].items()]
    at += [f"at the step: {figures['late']}"] if figures["late"] else []
    verdict = f"{each:.2f} reductions per optimizer step, where {least} is enough"
    if figures["enforcement"] == "enforce":
        verdict = (
            f"{each:.2f} reductions per optimizer step, mode {figures['mode']}; {figures['before']:.0f} in the window that was only counted"
        )
        if figures["trial"]:
            verdict = f"{each:.2f} reductions per optimizer step, in windows of both policies"
        elif not figures["suppressed"]:
            verdict = f"{each:.2f} reductions per optimizer step; nothing is deferred"
    elif figures["unreduced"]:
        verdict = f"{figures['unreduced']} of {windows} optimizer steps used gradients that no micro-step before them had reduced"
    elif not figures["wasted"]:
        verdict = f"{each:.2f} reductions per optimizer step: as it should be"
    rows = [
        ("optimizer steps", f"{windows}"),
        ("micro-steps per step", sizes),
        ("reductions, by place in the window", ", ".join(at) or "none"),
        ("wasted reductions", f"{figures['wasted']} ({_rate(figures['wasted'], windows)} per step)"),
        ("gradient collectives per step", _rate(figures["gradient_collectives"], windows)),
        ("MB of gradients per step", _rate(figures["gradient_bytes"] / 1e6, windows)),
    ]
    if figures["wasted_ns"]:
        total, each_ms = figures["wasted_ns"] / 1e9, figures["wasted_ns"] / 1e6 / windows
        rows.append(
            ("seconds in wasted reductions", f"{total:.3f} ({each_ms:.2f} ms per step); what the backward hides of it costs nothing")
        )
    if figures["other_collectives"]:
        rows.append(("the script's other collectives", ", ".join(f"{count} {op}" for op, count in figures["other_collectives"].items())))
    if figures["ours"]:
        rows.append(("gradgate's own collectives per step", _rate(figures["ours"], windows)))
    if figures["predicted"] and figures["suppressed"]:
        rows.append(("ended as predicted", f"{figures['predicted']['hits']}; {figures['predicted']['outrun']} went on after that"))
    lines = [f"gradgate: {what}: {verdict}", *(f"  {name:<36}{value}" for name, value in rows)]
    lines += [f"  {reason}: {text}" for reason, text in figures["told"].items()]
    if figures["trial"] and not figures["trial"]["over"]:
        lines += trial.page(figures["trial"], "+".join(figures["wrappers"]))
    if figures["given_up"] and not (figures["trial"] and figures["trial"]["over"]):
        lines.append(f"  counted until this went wrong, and the script was left alone: {figures['given_up']}")
    if not figures["seeing"]:
        lines.append("  collectives cannot be counted in this process; the figures above are not to be trusted")
    if figures["wasted"] and figures["enforcement"] != "enforce" and not figures["never"]:
        lines.append("  what it would save here, in time: gradgate trial -- …")
        by_hand = "sync = gradgate.attach(model, optimizer, accumulate=…) in the script"
        lines.append(f"  to mend it: gradgate run --enforce, which says if it cannot; or {by_hand}")
    if figures["deferring"]:
        lines.append(f"  {figures['deferring']}")
    return lines


def tell(lines: list[str], rank: int) -> None:
    """While the script runs."""
    if rank == 0:
        print("\n".join(lines), file=sys.stderr, flush=True)


def at_exit(observer: Observer) -> None:
    seconds = time.perf_counter() - observer.begin
    figures = [of(one) for one in observer.observed]
    if observer.rank != 0 or not (figures or observer.left_alone):
        return
    lines = [line for one in figures for line in _page(one)]
    lines += [f"gradgate: left alone: {why}" for why in observer.left_alone]
    if figures and trial.asked() is not None and not any(one["trial"] for one in figures):
        lines.append("gradgate trial: not begun: no window reduced more than once, or what is said above keeps gradgate from changing that")
    print("\n".join(lines), file=sys.stderr, flush=True)
    target = os.environ.get("GRADGATE_RUN_REPORT")
    if target:
        held = {"seconds": seconds, "world_size": observer.world_size, "observed": figures}
        Path(target).write_text(json.dumps({**held, "left_alone": observer.left_alone}, indent=2) + "\n")
