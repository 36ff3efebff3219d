"""sync.stats(): one rank's counts as a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .adapters.base import Role
from .ledger import OPERATIONS

if TYPE_CHECKING:
    from .job import Job


def collect(job: Job) -> dict[str, Any]:
    """Keys:

    windows, windows_full, windows_partial, windows_empty, windows_late, windows_unstepped, windows_mismatched, windows_disagreed,
    windows_discarded, micro_steps, micro_steps_skipped, steps, items, ballots, overrides, refused (calls), warnings
    reductions, reductions_intended, suppressed, late     sums over roles; by role under "roles"
    collectives {operation: n}, gradient_collectives, ours {operation: n}, bytes (of gradients)
    mode, policy (version in force), enforcement, linked, tap {native, seeing}, unseen (what cannot be counted), told {reason: count}
    """
    job.tap.poll()
    ledger = job.ledger
    stats = ledger.stats()
    collectives: dict[str, int] = {}
    gradient: dict[str, int] = {}
    ours: dict[str, int] = {}
    unknown = failed = 0
    for role in Role:
        for op, name in enumerate(OPERATIONS):
            cell = ledger.collective_stats(role, op)
            for where, count in ((gradient, cell.gradient_issued), (ours, cell.ours_issued)):
                if count:
                    where[name] = where.get(name, 0) + count
            total = cell.gradient_issued + cell.ours_issued + cell.other_issued
            if total:
                collectives[name] = collectives.get(name, 0) + total
            unknown += cell.unknown
            failed += cell.failed
    roles = {role.name.lower(): ledger.role_stats(role) for role in Role if job.roles & (1 << role)}
    return {
        "windows": stats.windows_full + stats.windows_partial + stats.windows_empty,
        "windows_full": stats.windows_full,
        "windows_partial": stats.windows_partial,
        "windows_empty": stats.windows_empty,
        "windows_late": stats.windows_late,
        "windows_unstepped": stats.windows_unstepped,
        "windows_mismatched": stats.windows_mismatched,
        "windows_disagreed": stats.windows_disagreed,
        "windows_discarded": stats.windows_discarded,
        "micro_steps": stats.micro_steps,
        "micro_steps_skipped": stats.micro_steps_skipped,
        "steps": stats.steps,
        "items": stats.items,
        "ballots": stats.ballots,
        "overrides": stats.overrides,
        "refused": stats.refused,
        "warnings": stats.warnings,
        "reductions": stats.reductions_issued,
        "reductions_intended": stats.reductions_intended,
        "suppressed": stats.reductions_suppressed,
        "late": stats.reductions_late,
        "roles": {
            name: {key: getattr(role, key) for key in ("intended", "issued", "suppressed", "late", "declared_extra")}
            for name, role in roles.items()
        },
        "collectives": collectives,
        "gradient_collectives": stats.gradient_collectives,
        "gradient": gradient,
        "ours": ours,
        "bytes": stats.gradient_bytes,
        "unknown": unknown,
        "failed": failed,
        "exposed_ns": stats.exposed_ns,
        "wait_ns": stats.wait_ns,
        "micro_step_ns": stats.micro_step_ns,
        "window_ns": stats.window_ns,
        "policy": ledger.policy().version,
        "mode": job.mode,
        "enforcement": job.enforcement,
        "linked": bool(stats.linked),
        "tap": {"native": job.tap.native, "seeing": job.tap.seeing},
        "unseen": job.tap.blind_spots(),
        "told": dict(ledger.told),
    }
