"""An optimizer's step on a copy of the optimizer. Of the original nothing is written, none of its hooks fires, and no rank communicates.

The copy has its own parameters, random gradients and the original's state, once; the variants to be compared (groups as they are,
merged, with another implementation) share these and differ in their groups alone. It is stepped by the class's own step, without what
schedulers, compilers or gradgate put around it. A sharded tensor is stood in for by this rank's part, as a plain tensor.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch

from . import _memory
from ._steps import Group, NoCommunication, Unmeasurable, bare_step, first_line, implementation, ranks, refuse_communicating

CUT_ELEMENTS = 1024  # of each tensor, where whole ones do not fit
Step = Callable[[], object]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a sharded tensor, without autograd; other tensors as they are. Does not communicate."""
    detached = tensor.detach()
    return cast(torch.Tensor, detached.to_local()) if hasattr(detached, "to_local") else detached


def _cut_shape(shape: Sequence[int], limit: int) -> tuple[int, ...]:
    kept: list[int] = []
    for size in reversed(shape):
        kept.append(min(size, max(1, limit)))
        limit //= max(1, kept[-1])
    return tuple(reversed(kept))


class Rehearsal:
    """Clones that can be stepped. One thread.

    They are whole, and `cut` is None, where they take half of what is free or less; else tensors are cut to `cut` elements.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        """Unmeasurable where the optimizer cannot be copied."""
        self._optimizer = optimizer
        self._step = bare_step(optimizer)
        self._watched = ranks() > 1
        if self._watched:
            refuse_communicating(type(optimizer))
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad]
        self.devices = sorted({local(parameter).device for parameter in trained}, key=str)
        if not trained:
            raise Unmeasurable("no parameter asks for a gradient")
        if any(device.type == "meta" for device in self.devices):
            raise Unmeasurable("parameters are on the meta device")
        self.cut = None if self._fits(trained) else CUT_ELEMENTS
        self._memo: dict[int, Any] = {}  # as deepcopy has it
        self._clones: list[torch.nn.Parameter] = []
        self._generators = {device: torch.Generator(device).manual_seed(0) for device in self.devices}
        self.state: dict[Any, Any] = defaultdict(dict)
        for parameter in trained:
            if id(parameter) not in self._memo:
                self._clone(parameter)
        for key, value in optimizer.state.items():
            if not isinstance(key, torch.Tensor):
                self.state[key] = self._copied(value, "state")

    def _fits(self, trained: Iterable[torch.Tensor]) -> bool:
        """Counts parameters, gradients, state (guessed before the first step), and a temporary of foreach's: the size of the parameters."""
        needed: dict[torch.device, int] = defaultdict(int)
        for parameter in trained:
            held = local(parameter)
            needed[held.device] += 3 * held.nbytes
            state = [value for value in self._optimizer.state.get(parameter, {}).values() if isinstance(value, torch.Tensor)]
            needed[held.device] += sum(local(value).nbytes for value in state) if state else 2 * held.nbytes
        return all(size <= _memory.free_bytes(device) // 2 for device, size in needed.items())

    def _clone(self, parameter: torch.Tensor) -> None:
        held = local(parameter)
        shape = held.shape if self.cut is None else _cut_shape(held.shape, self.cut)
        part = tuple(slice(size) for size in shape)
        clone = torch.nn.Parameter(held[part].clone() if part else held.clone())
        clone.requires_grad_(not self._optimizer.defaults.get("differentiable"))
        clone.grad = self._gradient(parameter, clone)
        self._memo[id(parameter)] = clone
        self._clones.append(clone)
        state = self._optimizer.state.get(parameter)
        if not isinstance(state, dict) or not state:
            return
        copied = {}
        for key, value in state.items():
            if not isinstance(value, torch.Tensor):
                copied[key] = self._copied(value, f"state[{key!r}]")
                continue
            tensor = local(value)
            if self.cut is not None and tensor.numel() > 1:
                if tensor.shape != held.shape:
                    return  # not cut as the parameter is: it begins anew
                tensor = tensor[part]
            copied[key] = tensor.clone()
        self.state[clone] = copied

    def _gradient(self, parameter: torch.Tensor, clone: torch.Tensor) -> torch.Tensor:
        generator = self._generators[clone.device]
        sparse = type(self._optimizer).__name__ == "SparseAdam" or (parameter.grad is not None and parameter.grad.is_sparse)
        try:
            if not sparse or not clone.dim():
                return torch.empty_like(clone, requires_grad=False).normal_(0, 1e-2, generator=generator)
            rows = torch.arange(min(len(clone), 64), device=clone.device)
            values = torch.empty_like(clone[: len(rows)], requires_grad=False).normal_(0, 1e-2, generator=generator)
            return torch.sparse_coo_tensor(rows[None], values, clone.shape, is_coalesced=True, check_invariants=False)
        except (RuntimeError, NotImplementedError) as error:
            raise Unmeasurable(f"no random gradient of {clone.dtype} {type(clone.data).__name__}: {first_line(error)}") from error

    def _copied(self, value: Any, where: str, memo: dict[int, Any] | None = None) -> Any:
        try:
            return copy.deepcopy(value, self._memo if memo is None else memo)
        except Exception as error:
            raise Unmeasurable(f"its {where} cannot be copied: {first_line(error)}") from error

    def _group(self, group: Group, forced: str | None, memo: dict[int, Any]) -> Group:
        """Frozen tensors, which a step skips, are stood in for by empty ones."""
        chosen = forced or implementation(self._optimizer, group)
        stand_in = {
            key: self._copied(value, f"group's {key}", memo) if isinstance(value, torch.Tensor | list | tuple | dict | set) else value
            for key, value in group.items()
            if key != "params"
        }
        stand_in["params"] = [self._memo[id(each)] if id(each) in self._memo else torch.empty(0) for each in group["params"]]
        for key in ("foreach", "fused"):
            if key in group:
                stand_in[key] = key == chosen
        return stand_in

    def step_of(self, groups: Sequence[Group], forced: str | None = None) -> Step:
        """The step of a copy that has these groups (of the original's tensors), stepped once or twice already.

        `forced`: the implementation, else what torch chooses for these groups. Unmeasurable where it fails.
        """
        original = self._optimizer
        stand_in = object.__new__(type(original))
        memo = {**self._memo, id(original): stand_in}
        state: dict[Any, Any] = self.state
        if forced == "fused":  # which has its count of steps beside the parameter
            state = defaultdict(dict, {key: self._beside(key, value) for key, value in self.state.items()})
        memo[id(original.state)], memo[id(original.param_groups)] = state, (held := [self._group(group, forced, memo) for group in groups])
        attributes = {
            name: OrderedDict() if name.startswith("_optimizer_") and name.endswith("_hooks") else self._copied(value, name, memo)
            for name, value in vars(original).items()
            if name not in ("step", "zero_grad", "state", "param_groups")
        }
        vars(stand_in).update(attributes, state=state, param_groups=held, _warned_capturable_if_run_uncaptured=True)
        bare = self._step
        try:
            if self._watched:
                with NoCommunication():  # type: ignore[no-untyped-call]
                    bare(stand_in)
            bare(stand_in)
        except Unmeasurable:
            raise
        except Exception as error:
            raise Unmeasurable(f"stepping a copy raised {type(error).__name__}: {first_line(error)}") from error
        if any(clone.grad is None for clone in self._clones):
            raise Unmeasurable("its step() drops the gradients, so that a second one has nothing to do")
        return lambda: bare(stand_in)

    @staticmethod
    def _beside(key: Any, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get("step"), torch.Tensor):
            return value
        return {**value, "step": value["step"].to(device=key.device, dtype=torch.float32, copy=True)}

    def synchronize(self) -> None:
        for device in self.devices:
            if device.type != "cpu" and (module := getattr(torch, device.type, None)) is not None:
                module.synchronize(*([device] if device.type in ("cuda", "xpu") else []))
