"""Guards around the step: whatever reads gradients as reduced finds them reduced, or is refused by name.

    optimizer.step()         a step pre-hook; with a closure the check runs after the closure's backward
    optimizer.zero_grad()    replaced on the instance: what a wrapper has deferred goes with what p.grad shows
    GradScaler.unscale_      patched on the class while anything is attached
    clip_grad…_              replaced where modules have them by name while anything is attached; get_total_norm, too

An open window is ended late: reduced by all ranks together, since all ranks run the same loop. The check of an optimizer that no
attachment owns costs one dictionary look-up.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

from .adapters.base import Unreduced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .window import Window

_windows_of_parameter: dict[int, Window] = {}
_windows_of_optimizer: dict[int, Window] = {}
_restore: list[Callable[[], None]] = []


def refuse_attached(optimizers: list[torch.optim.Optimizer], parameters: list[torch.nn.Parameter]) -> None:
    if any(id(o) in _windows_of_optimizer for o in optimizers) or any(id(p) in _windows_of_parameter for p in parameters):
        raise ValueError(
            "this model or optimizer is attached already: sync.close() the former attachment first, or attach all together: "
            "gradgate.attach([a, b], [optimizer_a, optimizer_b], …)"
        )


def closure_place(args: Any, kwargs: Any) -> int | str | None:
    """Where a step's closure is among what it was called with, for its hooks: there args[0] may be the optimizer itself."""
    place = next((i for i, a in enumerate(args) if callable(a) and not isinstance(a, torch.optim.Optimizer)), None)
    return "closure" if place is None and kwargs.get("closure") is not None else place


def after_closure(args: Any, kwargs: Any, then: Callable[[], None]) -> Any:
    """What a step is to be called with, for a pre-hook to return, so that `then` runs after each call of its closure; None where it has
    none."""
    place = closure_place(args, kwargs)
    if place is None:
        return None
    closure = kwargs[place] if isinstance(place, str) else args[place]

    def closure_then() -> Any:
        loss = closure()
        then()
        return loss

    if isinstance(place, str):
        return args, {**kwargs, place: closure_then}
    return (*args[:place], closure_then, *args[place + 1 :]), kwargs


class Guards:
    """The guards of one attachment. Nothing is patched before the first and after the last."""

    def __init__(self, window: Window, optimizers: list[torch.optim.Optimizer]) -> None:
        self._window = window
        self._optimizers = optimizers
        self._seen = {id(optimizer): -1 for optimizer in optimizers}  # micro-steps at its last step
        self._stepping: set[int] = set()  # a subclass that calls its superclass's step runs the hooks twice
        self._handles: list[Any] = []
        for optimizer in optimizers:
            self._hook(optimizer)
        self._former = {id(optimizer): optimizer.__dict__.get("zero_grad") for optimizer in optimizers}
        for optimizer in optimizers:
            optimizer.zero_grad = self._zeroing(optimizer)  # type: ignore[method-assign]
        self._covered = {id(p) for adapter in window.job.adapters for p in adapter.covered()}
        self._ids = [id(p) for p in window.job.parameters]
        if not _windows_of_optimizer:
            _patch()
        _windows_of_optimizer.update((id(optimizer), window) for optimizer in optimizers)
        _windows_of_parameter.update((i, window) for i in self._ids)

    def add(self, optimizer: torch.optim.Optimizer) -> None:
        """Guards one that was made later. To be called by a pre-hook for all optimizers: in that step its own hooks are still to run."""
        self._seen[id(optimizer)] = -1
        self._optimizers.append(optimizer)
        self._former[id(optimizer)] = optimizer.__dict__.get("zero_grad")
        optimizer.zero_grad = self._zeroing(optimizer)  # type: ignore[method-assign]
        _windows_of_optimizer[id(optimizer)] = self._window
        self._hook(optimizer)

    def _hook(self, optimizer: torch.optim.Optimizer) -> None:
        self._handles.append(optimizer.register_step_pre_hook(self._before_step))
        if hasattr(optimizer, "register_step_post_hook"):
            self._handles.append(optimizer.register_step_post_hook(lambda stepped, *_: self._stepping.discard(id(stepped))))

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        nested = id(optimizer) in self._stepping
        self._stepping.add(id(optimizer))
        changed = after_closure(args, kwargs, lambda: self._check(optimizer, nested))
        if changed is None:
            self._check(optimizer, nested)
        return changed

    def _check(self, optimizer: torch.optim.Optimizer, nested: bool) -> None:
        window = self._window
        micro_steps = window.all_micro_steps
        if (
            not nested
            and window.leave is None  # else nobody wrote micro-steps
            and micro_steps == self._seen[id(optimizer)]
            and not (window.closed or window.discarded)
            and any(p.grad is not None for g in optimizer.param_groups for p in g["params"])
        ):
            window.ledger.warn(
                "no_window",
                "the optimizer steps and no micro-step has begun since its last step: put forward and backward into "
                "`with sync.micro_step():`; outside it gradients are reduced as the wrapper does by itself, and in no window",
            )
        self._seen[id(optimizer)] = micro_steps
        if window.agreement is not None and window.adapters:
            self._refuse_newcomers(optimizer)
        window.stepping()

    def _refuse_newcomers(self, optimizer: torch.optim.Optimizer) -> None:
        """Parameters that were added to the optimizer, or unfrozen under DDP, since attach: nobody reduces them."""
        covered = self._covered
        new = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None and id(p) not in covered]
        if new:
            shapes = ", ".join(str(tuple(p.shape)) for p in new[:4])
            raise Unreduced(
                f"{len(new)} parameters that step were not there, or frozen, when attached, and nobody reduces them (shapes {shapes}): "
                "wrap the model again, then sync.close() and gradgate.attach(…) anew"
            )

    def _zeroing(self, optimizer: torch.optim.Optimizer) -> Callable[..., None]:
        window, original = self._window, optimizer.zero_grad

        @functools.wraps(original)
        def zero_grad(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            window.zeroed(lambda: [p for g in optimizer.param_groups for p in g["params"]])

        return zero_grad

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        for optimizer in self._optimizers:
            optimizer.__dict__.pop("zero_grad", None)
            if (former := self._former[id(optimizer)]) is not None:
                optimizer.__dict__["zero_grad"] = former
            _windows_of_optimizer.pop(id(optimizer), None)
        for i in self._ids:
            _windows_of_parameter.pop(i, None)
        if not _windows_of_optimizer:
            while _restore:
                _restore.pop()()


def _check_parameters(what: str, parameters: Iterable[torch.Tensor]) -> None:
    for window in {id(w): w for p in parameters if (w := _windows_of_parameter.get(id(p))) is not None}.values():
        window.require_reduced(what)


def _window_of(optimizer: torch.optim.Optimizer) -> Window | None:
    """Also of one that was made later, for parameters that are attached."""
    window = _windows_of_optimizer.get(id(optimizer))
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    return window or next((w for p in parameters if (w := _windows_of_parameter.get(id(p))) is not None), None)


def _patch() -> None:
    scaler = torch.amp.GradScaler
    unscale, step = scaler.unscale_, scaler.step

    @functools.wraps(unscale)
    def unscale_(self: Any, optimizer: torch.optim.Optimizer) -> None:
        window = _window_of(optimizer)
        if window is not None:
            window.require_reduced("GradScaler.unscale_")
        unscale(self, optimizer)

    @functools.wraps(step)
    def step_(self: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        window = _window_of(optimizer)
        if window is not None:
            window.require_reduced("GradScaler.step")
            window.mended_by = ""  # whatever the scaler decides: this was the window's end
            window.scaler_decided = True
        return step(self, optimizer, *args, **kwargs)

    scaler.unscale_, scaler.step = unscale_, step_  # type: ignore[method-assign]
    _restore.append(functools.partial(setattr, scaler, "unscale_", unscale))
    _restore.append(functools.partial(setattr, scaler, "step", step))
    for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"):
        _patch_clip(name, getattr(torch.nn.utils, name))
    _patch_norm("get_total_norm", torch.nn.utils.get_total_norm)


def _patch_clip(name: str, original: Callable[..., Any]) -> None:
    @functools.wraps(original)
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        for window in set(_windows_of_parameter.values()):
            window.settle()  # module.parameters(), still to be iterated, gives what is registered: kept ones have no gradient
        tensors = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        _check_parameters(name, tensors)
        return original(tensors, *args, **kwargs)

    _replace(name, original, clip)


def _patch_norm(name: str, original: Callable[..., Any]) -> None:
    @functools.wraps(original)
    def norm(gradients: Any, *args: Any, **kwargs: Any) -> Any:
        tensors: list[Any] = [gradients] if isinstance(gradients, torch.Tensor) else list(gradients)
        for window in {w for w in _windows_of_parameter.values() if not w.closed}:
            owners = {id(p.grad): p for p in window.job.parameters if p.grad is not None}
            if any(id(tensor) in owners for tensor in tensors):
                window.require_reduced(name)
                tensors = [owners[id(tensor)].grad if id(tensor) in owners else tensor for tensor in tensors]
        return original(tensors, *args, **kwargs)

    _replace(name, original, norm)


def _replace(name: str, original: Callable[..., Any], by: Callable[..., Any]) -> None:
    """Also where a script has it by name."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if names is not None and names.get(name) is original:
            names[name] = by
            _restore.append(functools.partial(names.__setitem__, name, original))
