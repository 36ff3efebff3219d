"""How much more memory a process may take on a device, in bytes."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import torch

UNKNOWN_BYTES = 2 << 30  # where nothing tells

_FILES = (  # (mount, limit, used, what of it can be dropped): the second version of cgroups, and the first
    ("", "memory.max", "memory.current", ("inactive_file", "active_file")),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
)


def _number(path: pathlib.Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _fields(path: pathlib.Path) -> dict[str, int]:
    """Lines of "name value" or "name: value kB"."""
    try:
        lines = [line.replace(":", " ").split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _folders(root: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """Each cgroup that this process is in, with those above it, whose limits hold too. A container sees its own at the mount."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mount = {"": "", "memory": "memory"}.get("memory" if "memory" in controllers.split(",") else controllers)
        if mount is None:
            continue
        base = root / "sys/fs/cgroup" / mount
        inside = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(inside), -1, -1):
            yield mount, base.joinpath(*inside[:depth])


def host_free_bytes(root: pathlib.Path = pathlib.Path("/")) -> int:
    """The least of what the machine has available and what the cgroup's limits leave. `root` is where /proc and /sys are."""
    available = _fields(root / "proc/meminfo").get("MemAvailable")
    free = [] if available is None else [available << 10]
    for mount, folder in _folders(root):
        for kind, limit_file, used_file, droppable in _FILES:
            limit, used = _number(folder / limit_file), _number(folder / used_file)
            if kind == mount and limit is not None and used is not None:
                stat = _fields(folder / "memory.stat")
                free.append(max(0, limit - used + sum(stat.get(name, 0) for name in droppable)))
    return min(free, default=UNKNOWN_BYTES)


def free_bytes(device: torch.device) -> int:
    """Of a GPU: what the driver has left and what torch's allocator holds and does not use."""
    if device.type == "cpu":
        return host_free_bytes()
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return UNKNOWN_BYTES
