"""An audit as a page that is read in ten seconds: the verdict first, what to do last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from . import settings

if TYPE_CHECKING:
    from .audit import Audit

WORTH = 0.05  # of a step: what another implementation has to bring to be advised


def time(ms: float, like: float) -> str:
    """In the unit that suits `like`, so that times of one page can be compared."""
    value, unit = (1e3 * ms, "µs") if like < 1 else (ms, "ms") if like < 1e3 else (ms / 1e3, "s")
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f} {unit}"


def count(number: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:,}"


def devices(found: Iterable[torch.device]) -> str:
    """Each device once, as "cuda:0 NVIDIA L4" or "cpu, 2 threads"."""
    names = {}
    for device in found:
        extra = ""
        if device.type == "cpu":
            threads = torch.get_num_threads()
            extra = f", {threads} thread{'s' if threads != 1 else ''}"
        elif device.type == "cuda":
            extra = f" {torch.cuda.get_device_name(device)}"
        names[str(device)] = f"{device}{extra}"
    return " and ".join(names.values())


def best(audit: Audit) -> str:
    """The implementation worth asking for with the groups merged, "" for the one it has."""
    if audit.step_ms is None or audit.merged_ms is None or audit.interval_ms is None:
        return ""
    name, least = "", audit.merged_ms
    for other, taken in audit.alternatives.items():
        if least - taken > max(audit.interval_ms, WORTH * audit.step_ms):
            name, least = other, taken
    return name


def advice(audit: Audit) -> str:
    other = best(audit)
    if other:
        groups = "groups" if audit.groups == audit.needed else "gradgate.param_groups.merge(groups)"
        rounding = "; fused rounds differently: not the same bits as before" if other == "fused" else ""
        if rounding and audit.verdict == "saves":
            rounding += ", which merging alone would give"
        return f"{audit.optimizer}({groups}, {other}=True, …) where the optimizer is built{rounding}"
    verdict = audit.verdict
    if verdict in ("saves", "not measured"):
        return (
            "groups = gradgate.param_groups.merge(groups) before the optimizer is built, or "
            "gradgate.param_groups.merge_optimizer(optimizer) on this one"
        )
    if (
        verdict == "no verdict"
        and audit.interval_ms is not None
        and audit.step_ms is not None
        and audit.interval_ms > WORTH * audit.step_ms
    ):
        return "measure for longer, on a quieter machine: audit(optimizer, seconds=20)"
    return "nothing: leave it as it is"


def _groups(number: int) -> str:
    return f"{number:,} parameter group{'s' if number != 1 else ''}"


def _headline(audit: Audit) -> str:
    needs = f" and needs {audit.needed:,}" if audit.groups != audit.needed else " and needs them all" if audit.groups > 1 else ""
    has = f"{audit.optimizer} has {_groups(audit.groups)}{needs}"
    verdict, saving, other, step_ms = audit.verdict, audit.saving_ms, best(audit), audit.step_ms
    if verdict == "nothing to merge" and not other:
        return f"{has}: there is nothing to merge."
    if saving is None or step_ms is None or audit.interval_ms is None:
        return f"{has}; what merging saves was not measured: {audit.unmeasured}."
    step, change, chance = (time(ms, step_ms) for ms in (step_ms, abs(saving), audit.interval_ms))
    if other:
        after = audit.alternatives[other]
        how = "" if verdict == "nothing to merge" else "merged and "
        return f"{has}: {how}with {other}=True, a step takes {time(after, step_ms)} instead of {step}{_share(audit, step_ms - after)}."
    if verdict == "no verdict":
        return f"{has}: no verdict, merged the step is {change} {'shorter' if saving > 0 else 'longer'}, and by chance alone ±{chance}."
    if verdict == "costs":
        return f"{has}, but merging alone makes the step longer by {change}."
    return f"{has}: merging saves {change} of each {step} step{_share(audit, saving)}."


def _share(audit: Audit, saving: float) -> str:
    if audit.cut is not None or not audit.step_ms:
        return ""
    percent = 100 * saving / audit.step_ms
    return f" (−{percent:.{0 if percent >= 10 else 1}f} %)"


def _table(audit: Audit) -> list[str]:
    if audit.step_ms is None or audit.merged_ms is None or audit.interval_ms is None:
        return []
    default = ", torch's default here" if audit.chosen == "torch" else ""
    rows = [("as it is", audit.groups, audit.implementation + default, audit.step_ms)]
    if audit.groups != audit.needed:
        rows.append(("merged", audit.needed, audit.merged_implementation, audit.merged_ms))
    rows += [
        ("merged" if audit.groups != audit.needed else "instead", audit.needed, f"{name}=True", ms)
        for name, ms in audit.alternatives.items()
    ]
    lines: list[str] = []
    wide = max(len(how) for _, _, how, _ in rows)
    for what, groups, how, ms in rows:
        change = ms - audit.step_ms
        told = f"  {'+' if change > 0 else '−'}{time(abs(change), audit.step_ms)}" if lines else ""
        if lines and abs(change) <= audit.interval_ms:
            told += " (chance)"
        plural = "s" if groups != 1 else " "
        lines.append(f"  {what:8}  {groups:>5,} group{plural}  {how:{wide}}  {time(ms, audit.step_ms):>7}{told}")
    return lines


def _differences(audit: Audit) -> str:
    """What keeps the needed groups apart, by key, in a line."""
    keys = dict.fromkeys(key for group in audit.settings for key in group)
    said = []
    for key in keys:
        values = {settings.fingerprint(group[key]): group[key] for group in audit.settings if key in group}
        if len(values) > 1 or any(key not in group for group in audit.settings):
            shown = [settings.shown(value, 24) for value in values.values()]
            said.append(f"{key} ({', '.join(shown)})" if len(shown) <= 3 else f"{key} ({len(shown)} values, {shown[0]} … {shown[-1]})")
    return f"  the {audit.needed} differ in {', '.join(said)}" if said else ""


def page(audit: Audit) -> str:
    whole = f"{audit.parameters:,} tensors, {count(audit.elements)} elements, on {audit.measured_on}"
    lines = [_headline(audit), *_table(audit)]
    if audit.step_ms is not None and audit.interval_ms is not None:
        whole += f"; medians of {audit.rounds} rounds, the same step against itself ±{time(audit.interval_ms, audit.step_ms)}"
    lines.append(f"  {whole}")
    if audit.needed > 1:
        lines.append(_differences(audit))
    if audit.frozen:
        lines.append(f"  {audit.frozen:,} frozen tensors besides")
    if audit.cut is not None:
        lines.append(
            f"  measured on tensors cut to {audit.cut:,} elements, as whole ones do not fit: "
            "the saving in milliseconds holds, the share does not"
        )
    if audit.unmeasured and audit.groups == audit.needed:
        lines.append(f"  not measured: {audit.unmeasured}")
    lines += [f"  {note}" for note in audit.notes]
    return "\n".join([line for line in lines if line] + [f"Do: {audit.advice}."])
