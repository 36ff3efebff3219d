"""Accelerate with gradgate.accelerate.attach: its accumulate() as micro-steps, and loops that do without."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import exact
import torch
import trainers as t
from rows import row

AR, RS = "all_reduce", "reduce_scatter"
N, BATCHES = 4, 6


def accelerator_of(size: int, **options: Any) -> Any:
    import accelerate

    warnings.filterwarnings("ignore")
    accelerate.state.GradientState._reset_state()
    return accelerate.Accelerator(cpu=True, gradient_accumulation_steps=size, **options)


def loop(kind: str, gate: bool, epochs: int = 2) -> dict[str, Any]:
    from gradgate.accelerate import attach

    accelerator = accelerator_of(1 if kind.startswith("hand") else N)
    net = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(net.weight)
    rows_of_data: Any = torch.randint(-3, 4, (2 * BATCHES, 4), generator=torch.Generator().manual_seed(5)).to(torch.float64)
    loader = torch.utils.data.DataLoader(rows_of_data, batch_size=1)
    model, optimizer, data = accelerator.prepare(net, t.sgd(net, lr=2.0**-8), loader)
    t.KEPT.append(model)
    sync = attach(accelerator) if gate else None
    norms: list[float] = []
    watch = t.Watch(*([sync] if sync else []))
    with watch:
        for _ in range(epochs):
            for number, x in enumerate(data):
                if kind.startswith("hand"):
                    by_hand(kind, accelerator, model, optimizer, x, number)
                    continue
                with accelerator.accumulate(model):
                    accelerator.backward(model(x).sum())
                    if accelerator.sync_gradients:
                        norms.append(float(accelerator.clip_grad_norm_(model.parameters(), 2.0**20)))
                    optimizer.step()
                    optimizer.zero_grad()
    seen = watch.seen()
    if sync:
        sync.close()
        assert not {"accumulate", "no_sync"} & vars(accelerator).keys()
        assert getattr(model, "require_backward_grad_sync", True)
        assert not model._forward_pre_hooks
    accelerator.free_memory()
    return seen | {"hash": exact.parameter_hash(net.parameters()), "norms": norms}


def by_hand(kind: str, accelerator: Any, model: Any, optimizer: Any, x: torch.Tensor, number: int) -> None:
    last = (number + 1) % N == 0 or number + 1 == BATCHES
    quiet = accelerator.no_sync if kind != "hand own" else lambda wrapped: wrapped.no_sync()
    around_both = quiet(model) if not last and kind == "hand own" else contextlib.nullcontext()
    with around_both:
        loss = model(x).sum() / N
        with quiet(model) if not last and kind == "hand backward" else contextlib.nullcontext():
            accelerator.backward(loss)
    if last:
        optimizer.step()
        optimizer.zero_grad()


def both(kind: str) -> dict[str, Any]:
    plain, gated = loop(kind, False), loop(kind, True)
    same = plain["hash"] == gated["hash"] and plain["norms"] == gated["norms"]
    return gated | {"same": same, "before": plain["profiler"][AR]}


@row(same=True, gradient={AR: 4}, before=4, suppressed=8, late=0, windows=4, windows_full=2, windows_partial=2, steps=4, told=[])
def accumulate(rank: int, world: int) -> dict[str, Any]:
    """The window at the end of the data is two micro-steps long."""
    return both("accumulate")


@row(same=True, gradient={AR: 4}, before=12, windows=4, steps=4, micro_steps=12, told=[])
def t2_no_sync_around_the_backward_alone(rank: int, world: int) -> dict[str, Any]:
    return both("hand backward")


@row(same=True, gradient={AR: 4}, before=12, windows=4, steps=4, micro_steps=12, told=[])
def t2_no_context_at_all(rank: int, world: int) -> dict[str, Any]:
    return both("hand")


@row(same=True, gradient={AR: 4}, before=4, windows=4, steps=4, micro_steps=12, told=[])
def the_wrappers_own_context(rank: int, world: int) -> dict[str, Any]:
    return both("hand own")


def fixture(upto: int, **how: Any) -> dict[str, Any]:
    """Fixture F, each loss divided by Accelerate."""
    from gradgate.accelerate import attach

    scaled = how.pop("scaled", False)
    accelerator = accelerator_of(N)
    if scaled:
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    module = t.Units()
    plain_optimizer = t.sgd(module)
    schedule = torch.optim.lr_scheduler.LambdaLR(plain_optimizer, lambda _: 1.0)
    data: Any = torch.arange(2 * upto)
    model, optimizer, scheduler, loader = accelerator.prepare(
        module, plain_optimizer, schedule, torch.utils.data.DataLoader(data, batch_size=1)
    )
    t.KEPT.append(model)
    gradients = []
    with attach(accelerator, **how) as sync:
        for c, _ in zip(t.data(accelerator.process_index, upto), loader, strict=True):
            with accelerator.accumulate(model):
                accelerator.backward(model(c))
                if accelerator.sync_gradients:
                    if scaled:
                        accelerator.scaler.unscale_(plain_optimizer)
                    accelerator.clip_grad_norm_(model.parameters(), 1e9)
                    gradients.append(t.one(t.gradients(module)))
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        stats = sync.stats()
    accelerator.free_memory()
    return {"gradients": gradients, "scheduled": schedule.last_epoch // 2, "told": sorted(stats["told"]), "late": stats["late"]}


@row(gradients=[13.75, 15.125], late=0, told=[])
def t22_the_last_window_as_accelerate_divides_it(rank: int, world: int) -> dict[str, Any]:
    return fixture(6)


@row(gradients=[13.75, 30.25], late=0, told=[])
def t22_the_last_window_divided_by_its_own_size(rank: int, world: int) -> dict[str, Any]:
    return fixture(6, rescale_partial=True)


@row(gradients=[13.75, 35.75], scheduled=2, late=0, told=[])
def t38_t39_unscaled_once_at_the_boundary(rank: int, world: int) -> dict[str, Any]:
    return fixture(8, scaled=True)


@row(after=55.0, window=[3, True], restored=True)
def an_exception_in_a_micro_step(rank: int, world: int) -> dict[str, Any]:
    """The window goes on as it was."""
    from gradgate.accelerate import attach

    accelerator = accelerator_of(N)
    module = t.Units()
    model, optimizer = accelerator.prepare(module, t.sgd(module))
    t.KEPT.append(model)
    with attach(accelerator) as sync:
        for number, c in enumerate(t.data(rank)):
            if number == 3:
                with contextlib.suppress(KeyError), accelerator.accumulate(model):
                    raise KeyError
                restored = not sync.window.inside and model.require_backward_grad_sync
                held = [sync.window.micro_steps, not sync.boundary]
                accelerator.step = 3
            with accelerator.accumulate(model):
                accelerator.backward(model(c * N))
        return {"after": t.one(t.gradients(module)), "window": held, "restored": restored}


def sharded(gate: bool, *, hand: bool, mode: str = "window") -> dict[str, Any]:
    import accelerate
    from gradgate.accelerate import attach

    accelerate.state.AcceleratorState._reset_state()
    plugin = accelerate.FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap")
    accelerator = accelerator_of(1 if hand else N, fsdp_plugin=plugin)
    process, own = accelerate.state.PartialState._shared_state, accelerator.distributed_type
    process["distributed_type"] = accelerator.state.distributed_type = accelerate.DistributedType.FSDP  # by itself on GPUs alone
    accelerator.state.fsdp_plugin = plugin
    model, numbers = t.Units(), torch.arange(2 * BATCHES)
    loader: Any = torch.utils.data.DataLoader(numbers, batch_size=1)  # type: ignore[arg-type]
    model, optimizer, data = accelerator.prepare(model, t.sgd(model, lr=2.0**-8), loader)
    t.KEPT.append(model)
    sync = attach(accelerator, mode=mode) if gate else None
    watch = t.Watch(*([sync] if sync else []))
    with watch:
        for number, (c, _) in enumerate(zip(t.data(accelerator.process_index, BATCHES), data, strict=True)):
            last = number in (3, 5)
            with contextlib.nullcontext() if hand else accelerator.accumulate(model):
                loss = model(c) / N if hand else model(c)
                with accelerator.no_sync(model) if hand and not last else contextlib.nullcontext():
                    accelerator.backward(loss)
                if last:
                    accelerator.clip_grad_norm_(model.parameters(), 2.0**20)
                    optimizer.step()
                    optimizer.zero_grad()
    if sync:
        sync.close()
    accelerator.free_memory()
    process["distributed_type"] = own
    accelerate.state.AcceleratorState._reset_state()
    return watch.seen(weights=t.one(t.weights(model)))


@row(same=True, gradient={RS: 2}, suppressed=4, late=0, steps=2, told=[])
def accelerate_fsdp2(rank: int, world: int) -> dict[str, Any]:
    plain, gated = (sharded(gate, hand=False) for gate in (False, True))
    return gated | {"same": plain["weights"] == gated["weights"] != 0.0}


@row(same=True, gradient={RS: 2}, before=2, windows=2, steps=2, told=[], every={RS: 6})
def accelerate_fsdp2_by_hand(rank: int, world: int) -> dict[str, Any]:
    """Its no_sync would write FSDP2's flags inside the window: the mode holds over it."""
    plain, gated, every = (
        sharded(gate, hand=True, mode=mode) for gate, mode in ((False, ""), (True, "window"), (True, "every_micro_step"))
    )
    same = plain["weights"] == gated["weights"] == every["weights"] != 0.0
    return gated | {"same": same, "before": plain["profiler"][RS], "every": every["gradient"]}


@row(text="the accelerator has no model or no optimizer", alone="accelerator.distributed_type=DEEPSPEED")
def refusals(rank: int, world: int) -> dict[str, Any]:
    import types

    from gradgate.accelerate import attach

    texts = []
    deepspeed = types.SimpleNamespace(distributed_type=types.SimpleNamespace(name="DEEPSPEED"))
    for accelerator in (accelerator_of(N), deepspeed):
        try:
            attach(accelerator)
        except ValueError as error:
            texts.append(str(error).partition(":")[0])
    return {"text": texts[0], "alone": texts[1]}
