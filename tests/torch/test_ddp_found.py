"""What is found in a model: the older replicate, wrappers inside wrappers, and parameters outside of them."""

from __future__ import annotations

from typing import Any

import launch


def nested_rows(rank: int, world: int) -> dict[str, Any]:
    import counting
    import reducing
    import torch
    from gradgate import adapters
    from gradgate.adapters.base import Plan
    from torch.distributed._composable.replicate import replicate
    from torch.nn.parallel import DistributedDataParallel

    out: dict[str, Any] = {}

    def windows(model: Any, found: Any, inner: Any, late: bool) -> list[tuple[int, bool]]:
        seen = []
        for index in range(3):
            right, gradients = reducing.alone(inner, world, [[(0, True)] * world] * index + reducing.full(1, world))
            with counting.profiled() as counts:
                for k in range(4):
                    for a in found:
                        a.arm(Plan.REDUCE if k == 3 and not late else Plan.ACCUMULATE)
                    reducing.loss(model(reducing.batch(rank, index, k), rank, k)).backward()
                    for a in found:
                        a.disarm()
                for a in found:
                    a.late() if late else a.check()
            seen.append((counts["all_reduce"], reducing.same([p.grad for p in model.parameters()], gradients[-1])))
            reducing.step(model)
        return seen

    for late in (False, True):
        plain = reducing.whole(reducing.Net().double())
        replicate(plain, bucket_cap_mb=1e-6)
        found, strays = adapters.discover(plain)
        reference = reducing.whole(reducing.Net().double())
        before = [adapters_kind(found), len(found[0].parameters()), [g.role.name for g in found[0].groups()]]
        counts = []
        for index in range(3):
            right, gradients = reducing.alone(reference, world, [[(0, True)] * world] * index + reducing.full(1, world))
            with counting.profiled() as seen:
                reducing.window_of(found[0], plain, rank, index, 4, not late)
            counts.append((seen["all_reduce"], reducing.same([p.grad for p in plain.parameters()], gradients[-1])))
            reducing.step(plain)
            reference.load_state_dict(plain.state_dict())
        out[f"replicate, late {late}"] = [before, counts, strays]

        inner = DistributedDataParallel(reducing.whole(reducing.Net().double()), bucket_cap_mb=1e-6)
        outer = DistributedDataParallel(inner, bucket_cap_mb=1e-6)
        found, strays = adapters.discover(outer)
        notes = [note.reason for note in adapters.double_reductions(found)]
        out[f"nested, late {late}"] = [
            adapters_kind(found),
            [a.late_alone for a in found],
            notes,
            windows(outer, found, inner.module, late),
        ]

    class Around(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = DistributedDataParallel(torch.nn.Linear(2, 2))
            self.stray = torch.nn.Parameter(torch.ones(1))
            self.frozen = torch.nn.Parameter(torch.ones(1), requires_grad=False)

    model = Around()
    found, strays = adapters.discover(torch.compile(model, backend="eager"))  # type: ignore[arg-type]
    out["compiled"] = [adapters_kind(found), [name for name, _ in strays], found[0].late_alone]
    ignoring = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(ignoring, ["1.weight"])
    out["ignored"] = [name for name, _ in adapters.discover(DistributedDataParallel(ignoring))[1]]
    late_frozen = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    late_frozen[1].weight.requires_grad_(False)
    wrapped = DistributedDataParallel(late_frozen)
    late_frozen[1].weight.requires_grad_(True)
    out["unfrozen since"] = [name for name, _ in adapters.discover(wrapped)[1]]
    return out


def adapters_kind(found: Any) -> list[str]:
    return [a.kind for a in found]


def test_found_and_nested() -> None:
    for result in launch.run(nested_rows, 2):
        for late in (False, True):
            before, counts, strays = result[f"replicate, late {late}"]
            assert before == [["replicate"], 3, ["DP"]] and strays == []
            assert counts == [(1, True), (3, True), (3, True)], result
            kinds, alone, notes, windows = result[f"nested, late {late}"]
            assert kinds == ["ddp", "ddp"] and alone == [False, False] and notes == ["double_reduction"]
            assert windows == [(2, True), (6, True), (6, True)], windows
        assert result["compiled"] == [["ddp"], ["_orig_mod.stray", "_orig_mod.frozen"], True]
        assert result["ignored"] == []
        assert result["unfrozen since"] == ["module.1.weight"]
