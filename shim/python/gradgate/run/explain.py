"""What was found in a script's run, what is in force and why: `gradgate explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ..adapters.base import Adapter
    from .observed import Observed

VARIABLE = "GRADGATE_RUN_EXPLAIN"

_READ = {
    "forward": "in the forward: a context around the backward alone comes too late",
    "backward": "in the backward",
}


def of(one: Observed) -> dict[str, Any]:
    """All of it, for JSON. After an optimizer step."""
    job = one.sync.window.job
    held = {id(p) for adapter in job.adapters for p in adapter.parameters()}
    return {
        "wrappers": [_wrapper(adapter, one.models) for adapter in job.adapters],
        "optimizers": [_optimizer(optimizer, held) for optimizer in one.optimizers],
        "unseen": list(job.tap.blind_spots()),
        **in_force(one),
    }


def in_force(one: Observed) -> dict[str, Any]:
    """Of that, what changes while the script runs."""
    job = one.sync.window.job
    return {"enforcement": job.enforcement, "mode": job.mode, "why": _why(one), "prediction": _prediction(one)}


def _wrapper(adapter: Adapter, models: list[torch.nn.Module]) -> dict[str, Any]:
    import torch.distributed as dist  # noqa: PLC0415 - a process that only prints does without

    parameters = adapter.parameters()
    expected = adapter.expected() or {}
    return {
        "kind": adapter.kind,
        "module": _place(adapter.module, models),
        "parameters": len(parameters),
        "elements": sum(p.numel() for p in parameters),
        "bytes": sum(p.numel() * p.element_size() for p in parameters),
        "flag_read": adapter.flag_read,
        "late_alone": adapter.late_alone,
        "groups": [
            {
                "role": group.role.name.lower(),
                "ranks": dist.get_process_group_ranks(group.process_group),
                "backend": str(dist.get_backend(group.process_group)),
                "collectives": {operation: count for (role, operation), count in expected.items() if role == group.role},
            }
            for group in adapter.groups()
        ],
    }


def _place(module: torch.nn.Module, models: list[torch.nn.Module]) -> str:
    for model in models:
        for name, part in model.named_modules():
            if part is module:
                return f"{type(model).__name__}.{name}" if name else type(model).__name__
    return type(module).__name__


def _optimizer(optimizer: torch.optim.Optimizer, held: set[int]) -> dict[str, Any]:
    own = [p for group in optimizer.param_groups for p in group["params"]]
    return {
        "class": type(optimizer).__name__,
        "param_groups": len(optimizer.param_groups),
        "parameters": len(own),
        "outside": sum(id(p) not in held for p in own),
    }


def _why(one: Observed) -> str:
    enforcing = one.sync.window.job.enforcement == "enforce"
    if one.trial is not None:
        return "two policies in turn, as gradgate trial was asked to; after them the script goes on as it was written"
    if not enforcing:
        return "counted, and nothing changed: " + ("its first windows wasted nothing" if one.judged else "this is what --audit does")
    before = f"a window that was only counted reduced {one.before:.0f} times"
    if one.sync.window.job.mode == "every_micro_step":
        return f"{before}; sharded gradients cost least memory so (--mode window defers all)"
    return f"{before}; a step needs one reduction"


def _prediction(one: Observed) -> str:
    job = one.sync.window.job
    if job.enforcement != "enforce":
        return ""
    if job.prediction is None:
        return str(job.ledger.told.get("unpredicted", ""))
    if not job.prediction.micro_steps:
        return "none yet: windows are reduced at their step until two in a row are alike on all ranks"
    return f"windows of {job.prediction.micro_steps}: reduced in the last backward; one that ends before, at its step"


def page(figures: dict[str, Any]) -> list[str]:
    """`figures`: an entry of the report, with "explain" in it."""
    told = figures["explain"]
    lines = [f"gradgate found: {', '.join(figures['model'])}"]
    for one in told["wrappers"]:
        size = f"{one['parameters']} parameters, {one['elements'] / 1e6:.2f} M elements, {one['bytes'] / 1e6:.1f} MB"
        lines.append(f"  {one['kind']} on {one['module']}: {size}")
        lines += [f"    {_group(group)}" for group in one["groups"]]
        lines.append(f"    whether to reduce is read {_READ[one['flag_read']]}")
        if not one["late_alone"]:
            lines.append("    all ranks must bring the same micro-steps: a rank that is late cannot pair with others that were not")
    for one in told["optimizers"]:
        outside = f", {one['outside']} of them in no wrapper" if one["outside"] else ""
        groups = f"{one['param_groups']} parameter group" + "s" * (one["param_groups"] != 1)
        lines.append(f"  stepped by {one['class']}: {one['parameters']} parameters, {groups}{outside}")
    lines.append("  windows: observed; a forward and the backward through its output are a micro-step, an optimizer's step ends a window")
    lines.append(f"  in force: {told['enforcement']}, {told['mode']}: {told['why']}")
    if told["prediction"]:
        lines.append(f"  prediction: {told['prediction']}")
    lines += [f"  {reason}: {text}" for reason, text in figures["told"].items()]
    lines += [f"  cannot be counted: {what}" for what in told["unseen"]]
    if figures["given_up"]:
        lines.append(f"  given up: {figures['given_up']}")
    return lines


def _group(group: dict[str, Any]) -> str:
    ranks, what = group["ranks"], ", ".join(f"{count} {operation}" for operation, count in group["collectives"].items())
    shown = f"{len(ranks)} ranks ({', '.join(map(str, ranks[:8]))}{', …' if len(ranks) > 8 else ''})"
    return f"group {group['role']}: {shown}, {group['backend']}" + (f"; one reduction is {what}" if what else "")
