"""The options of attach(), checked: each error names the value and the remedy. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

MODES = ("auto", "window", "window_replica", "every_micro_step")
WINDOWS = ("equal", "variable")
UNEVEN = ("stop", "zeros")
DIVIDE = ("world", "active")
WIRES = (None, "bf16", "fp16")


@dataclass(frozen=True)
class Options:
    """As given to attach(); `accumulate` is 0 where the window is observed."""

    accumulate: int
    mode: str = "auto"
    windows: str = "equal"
    uneven: str = "stop"
    divide: str = "world"
    bucket_mb: float | None = None
    wire: str | None = None
    keep_params: bool | None = None
    strict: bool = False
    job: str | None = None
    deadline_s: float = 300.0
    handshake_deadline_s: float = 60.0
    parity_every: int = 16
    facts: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def variable(self) -> bool:
        return self.windows == "variable" or self.uneven == "zeros"


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(repr(a) for a in allowed)}")


def _positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name}={value!r}: must be a positive number")


def check(accumulate: object, **given: object) -> Options:
    """Options from what the caller typed. ValueError or TypeError, naming the argument."""
    if accumulate == "observe":
        count = 0
    elif isinstance(accumulate, bool) or not isinstance(accumulate, int):
        raise TypeError(f"accumulate={accumulate!r}: must be the micro-steps of a window, an int, or 'observe'")
    elif not 1 <= accumulate < 2**31:
        raise ValueError(f"accumulate={accumulate}: must be at least 1; 1 reduces in every micro-step")
    else:
        count = accumulate
    for name, allowed in (
        ("mode", MODES),
        ("windows", WINDOWS),
        ("uneven", UNEVEN),
        ("divide", DIVIDE),
        ("wire", WIRES),
        ("keep_params", (None, True, False)),
    ):
        _one_of(name, given[name], allowed)
    if given["bucket_mb"] is not None:
        _positive("bucket_mb", given["bucket_mb"])
    every = given["parity_every"]
    if isinstance(every, bool) or not isinstance(every, int) or every < 0:
        raise ValueError(f"parity_every={every!r}: must be a number of windows; 0 compares never")
    _positive("deadline_s", given["deadline_s"])
    _positive("handshake_deadline_s", given["handshake_deadline_s"])
    job = given["job"]
    if job is not None and (not isinstance(job, str) or not job or len(job.encode()) > 100 or any(c in job for c in "=\n")):
        raise ValueError(f"job={job!r}: must be a name of 1 to 100 bytes without '=' and line breaks")
    return Options(accumulate=count, **given)  # type: ignore[arg-type]
