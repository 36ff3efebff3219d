"""A micro-step that failed after collectives of the trainer's had been issued in it, and is tried again.

What it sends then pairs with what the others send next: right where all ranks of the group have failed at the same place, and else a
mixture of different layers, or a wait for ever. So each says where it failed, through the job's store, and waits for the others.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch.distributed as dist

from .ledger import OPERATIONS, Disagreement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .adapters.base import Adapter, Group
    from .window import Window

_TOGETHER_S = 30.0  # ranks that fail at the same place do so within a collective's time
_LONGEST_PAUSE_S = 0.02


def of_a_lost_rank(error: BaseException) -> bool:
    """Whether the micro-step seems to have failed since another rank is gone. Gloo's errors have no type of their own."""
    return isinstance(error, dist.DistError) or (type(error) is RuntimeError and "peer" in str(error))


def sent_again(window: Window, failed: list[Adapter]) -> list[Group]:
    """Groups in which another try of the open micro-step would send what has been sent."""
    if window.agreement is None or window.leave is not None or not window.job.enforcing:
        return []
    groups = {id(group.process_group): group for adapter in failed for group in adapter.groups()}
    return [group for group in groups.values() if window.ledger.trainer_issued(group.role) > 0]


def await_others(window: Window, groups: Sequence[Group]) -> None:
    """Before the next micro-step. Raises Disagreement where others have not failed, or elsewhere: this rank cannot go on then, and as
    its process ends the others learn why."""
    assert window.agreement is not None
    store = window.agreement.store("failed")
    place = f"{window.ledger.window_index}/{window.micro_steps}"
    end, pause = time.monotonic() + min(_TOGETHER_S, window.job.options.deadline_s), 50e-6
    for group in groups:
        ranks = dist.get_process_group_ranks(group.process_group)
        where = f"{','.join(map(str, ranks))}/{place}/{_issued(window, group)}"
        store.set(f"{where}/{dist.get_rank()}", "1")
        missing = ranks
        while missing := [rank for rank in missing if not store.check([f"{where}/{rank}"])]:
            if time.monotonic() >= end:
                _give_up(window, group, missing)
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE_S)


def _issued(window: Window, group: Group) -> int:
    """Since it was attached: the same on all ranks of a group at the same place of their loops."""
    cells = [window.ledger.collective_stats(group.role, op) for op in range(len(OPERATIONS))]
    return sum(cell.gradient_issued + cell.other_issued for cell in cells)


def _give_up(window: Window, group: Group, missing: list[int]) -> None:
    text = (
        f"window {window.ledger.window_index}: micro-step {window.micro_steps + 1} failed on this rank after collectives of it had been "
        f"issued ({group.role.name.lower()}), and has not failed at the same place on ranks {missing}: to try it again would pair "
        "collectives that are not the same. Restart from a checkpoint; with keep_params=True FSDP2 gathers nothing again"
    )
    window.ledger.fail(text)
    raise Disagreement(text)
