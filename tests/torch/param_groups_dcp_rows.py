"""What the tests of param_groups' checkpoints through torch.distributed.checkpoint train, save and resume, in one process and sharded.

A net of 12 tensors with 4 settings: one group for each tensor ("single", as old checkpoints have it) or one for each setting ("merged").
All ranks have the same data, so that the mean of their gradients is each one's, and sharded runs equal plain ones bit for bit.
"""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from gradgate.param_groups import merge, regroup_state_dict
from gradgate.param_groups.dcp import dcp_layout
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim.lr_scheduler import ChainedScheduler, CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, ReduceLROnPlateau, SequentialLR

SINGLE, MERGED = 12, 4
STEPS = 3  # before the checkpoint, and again after it

warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # dcp in one process says so at each call


class Net(torch.nn.Module):
    """`seed` gives the initial values: a resumed net begins with others."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6)) for _ in range(3))
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def settings(name: str) -> dict[str, float]:
    return {"lr": 0.02 if name.startswith("layers.2") else 0.01, "weight_decay": 0.0 if name.endswith("bias") else 0.1}


def groups_of(model: torch.nn.Module, count: int) -> list[dict[str, Any]]:
    single = [{"params": [parameter], **settings(name)} for name, parameter in model.named_parameters()]
    groups = single if count == SINGLE else merge(single)
    assert len(groups) == count, len(groups)
    return list(groups)


class Decay:
    """A callable object as lr_lambda: its attributes are saved."""

    def __init__(self, rate: float | None) -> None:
        if rate is not None:
            self.rate = rate

    def __call__(self, epoch: int) -> float:
        return float(getattr(self, "rate", 0.9) ** epoch)


def by_lambdas(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return LambdaLR(optimizer, [lambda epoch: 0.9**epoch for _ in optimizer.param_groups])


def by_objects(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return LambdaLR(optimizer, [Decay(0.8 if group["weight_decay"] else 0.7) for group in optimizer.param_groups])


def by_other_objects(optimizer: torch.optim.Optimizer) -> LRScheduler:
    """For the resumed job, whose attributes are to be the saved ones."""
    return LambdaLR(optimizer, [Decay(0.1) for _ in optimizer.param_groups])


def by_bare_objects(optimizer: torch.optim.Optimizer) -> LRScheduler:
    """DCP drops dicts with nothing in them, and with them these lr_lambdas."""
    return LambdaLR(optimizer, [Decay(None) for _ in optimizer.param_groups])


def by_warm_up(optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Past its milestone at the checkpoint."""
    return SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=2), CosineAnnealingLR(optimizer, 8)], milestones=[2])


def by_chain(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return ChainedScheduler([by_objects(optimizer), LinearLR(optimizer, 0.5, total_iters=4)])


def on_plateau(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return ReduceLROnPlateau(optimizer, factor=0.5, patience=0, min_lr=[group["lr"] / 8 for group in optimizer.param_groups])


class Job:
    """A model, its optimizer with `count` groups, and a scheduler. `frozen`: a layer."""

    def __init__(
        self,
        count: int,
        *,
        schedule: Callable[[torch.optim.Optimizer], LRScheduler] = by_lambdas,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
        mesh: Any = None,
        seed: int = 0,
        frozen: int | None = None,
    ) -> None:
        self.model = Net(seed)
        for parameter in self.model.layers[frozen].parameters() if frozen is not None else ():
            parameter.requires_grad_(False)
        if mesh is not None:
            from torch.distributed.fsdp import fully_shard

            for layer in self.model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(self.model, mesh=mesh)
        self.optimizer = optimizer(groups_of(self.model, count))
        self.scheduler = schedule(self.optimizer)
        self.steps = 0

    def train(self, steps: int = STEPS) -> Job:
        for _ in range(steps):
            x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1000 + self.steps))
            self.model(x).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if isinstance(self.scheduler, ReduceLROnPlateau):
                self.scheduler.step(1.0)
            else:
                self.scheduler.step()
            self.steps += 1
        return self

    def wanted(self, options: StateDictOptions | None = None) -> dict[str, Any]:
        return {
            "model": get_model_state_dict(self.model, options=options),
            "optim": get_optimizer_state_dict(self.model, self.optimizer, options=options),
            "scheduler": self.scheduler.state_dict(),
            "steps": self.steps,
        }

    def save(self, folder: str | pathlib.Path, options: StateDictOptions | None = None) -> None:
        dcp.save(self.wanted(options), checkpoint_id=folder)

    def take(self, saved: dict[str, Any], wanted: dict[str, Any], options: StateDictOptions | None = None, *, empty: bool = False) -> Job:
        """What dcp.load has filled, or torch.load has read; `empty` on ranks that are sent the state."""
        optim, schedule = regroup_state_dict(saved["optim"], saved["scheduler"], target=wanted["optim"])
        set_model_state_dict(self.model, {} if empty else saved["model"], options=options)
        set_optimizer_state_dict(self.model, self.optimizer, {} if empty else optim, options=options)
        self.scheduler.load_state_dict(schedule)
        self.steps = saved["steps"]
        return self

    def load(self, folder: str | pathlib.Path, options: StateDictOptions | None = None) -> Job:
        reader = dcp.FileSystemReader(folder)
        wanted = self.wanted(options)
        saved = dcp_layout(wanted, reader)
        dcp.load(saved, storage_reader=reader)
        if options and options.flatten_optimizer_state_dict:  # which says nothing of groups
            wanted["optim"] = get_optimizer_state_dict(self.model, self.optimizer)
        return self.take(saved, wanted, options)

    def shown(self) -> dict[str, Any]:
        """Each parameter's value, state and settings, by its name: equal where two jobs are, bit for bit."""
        group_of = {parameter: group for group in self.optimizer.param_groups for parameter in group["params"]}
        found: dict[str, Any] = {}
        for name, parameter in self.model.named_parameters():
            state = {key: plain(value) for key, value in sorted(self.optimizer.state[parameter].items())}
            group = group_of.get(parameter, {})  # none: frozen, and left out
            hyper = {key: plain(value) for key, value in sorted(group.items()) if key not in ("params", "param_names")}
            found[name] = {"value": plain(parameter), "state": state, "settings": hyper}
        return found


def plain(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return tuple(value) if isinstance(value, list) else value  # betas: torch makes a list of it with full_state_dict
    value = value.detach()
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).cpu().numpy().tobytes()


def same(resumed: Job, uninterrupted: Job, stateful: bool = True) -> bool:
    """Both trained on: what they show of each trained parameter, which has state if the optimizer is `stateful`."""
    one, other = resumed.train().shown(), uninterrupted.train().shown()
    trained = {name for name, parameter in resumed.model.named_parameters() if parameter.requires_grad}
    one, other = ({name: held for name, held in shown.items() if name in trained} for shown in (one, other))
    assert resumed.steps == uninterrupted.steps == 2 * STEPS
    assert {bool(held["state"]) for held in other.values()} == {stateful}
    return one == other


def two_ranks(rank: int, world: int, folder: str) -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (world,))
    root = pathlib.Path(folder)
    found: dict[str, Any] = {}
    for before, after in ((SINGLE, MERGED), (MERGED, SINGLE), (SINGLE, SINGLE)):
        old = Job(before, mesh=mesh, schedule=by_warm_up).train()
        old.save(root / f"{before} {after}")
        fresh = Job(after, mesh=mesh, schedule=by_warm_up, seed=1)
        found[f"{before} to {after}"] = same(fresh.load(root / f"{before} {after}"), old)
    Job(SINGLE, mesh=mesh, schedule=by_objects).train().save(root / "by two")
    found["in place"] = in_place(mesh, root / f"{SINGLE} {MERGED}")
    found["offloaded"] = offloaded(mesh, root / f"{SINGLE} {MERGED}")
    for before, after in ((SINGLE, MERGED), (MERGED, SINGLE)):
        found[f"full, {before} to {after}"] = through_torch_save(rank, mesh, before, after, root, StateDictOptions(full_state_dict=True))
        found[f"rank 0's, {before} to {after}"] = through_torch_save(
            rank, mesh, before, after, root, StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
    return found


def in_place(mesh: Any, folder: pathlib.Path) -> bool:
    """The shards that dcp.load fills are those of the given state: no second copy of the state is held."""
    wanted = Job(MERGED, mesh=mesh, schedule=by_warm_up, seed=1).wanted()
    saved = dcp_layout(wanted, dcp.FileSystemReader(folder))
    return all(
        value.to_local().data_ptr() == wanted["optim"]["state"][name][key].to_local().data_ptr()
        for name, state in saved["optim"]["state"].items()
        for key, value in state.items()
        if key != "step"
    )


def offloaded(mesh: Any, folder: pathlib.Path) -> bool:
    options = StateDictOptions(cpu_offload=True)
    uninterrupted = Job(SINGLE, mesh=mesh, schedule=by_warm_up).train()
    return same(Job(MERGED, mesh=mesh, schedule=by_warm_up, seed=1).load(folder, options), uninterrupted)


def through_torch_save(rank: int, mesh: Any, before: int, after: int, root: pathlib.Path, options: StateDictOptions) -> bool:
    """A file of the whole state, from rank 0; with cpu_offload only that rank has it, and sends the others theirs when it is loaded."""
    file = root / f"{before} {after} {options.cpu_offload}.pt"
    old = Job(before, mesh=mesh).train()
    whole = old.wanted(options)
    if rank == 0:
        torch.save(whole, file)
    dist.barrier()
    fresh, sent = Job(after, mesh=mesh, seed=1), options.cpu_offload
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=sent)
    return same(fresh.take(torch.load(file, weights_only=True), fresh.wanted(), options, empty=sent and rank > 0), old)
