"""The mirror of gradgate.h: the only file that knows ctypes. A test compares it with the header.

The library is the wheel's own, `lib/libgradgate.so` beside this file, unless GRADGATE_LIBRARY names another.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import types
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

ABI_MAJOR, ABI_MINOR = 1, 3

OK, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, RESOURCE_EXHAUSTED = 0, 3, 4, 5, 8
FAILED_PRECONDITION, ABORTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 9, 10, 12, 13, 14
MODE_DEFAULT, MODE_EVERY_MICRO_STEP, MODE_WINDOW, MODE_WINDOW_REPLICA, MODE_AUTO = range(5)
WINDOWS_EQUAL, WINDOWS_VARIABLE = range(2)
SEVERITY_INFO, SEVERITY_WARNING = range(2)
LAST_BY_COUNT, LAST_NO, LAST_YES = range(3)
WINDOW_FULL, WINDOW_PARTIAL, WINDOW_EMPTY = 1, 2, 3
GROUP_DP, GROUP_SHARD, GROUP_REPLICATE, GROUP_OTHER = range(4)
OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_ALL_GATHER, OP_BROADCAST, OP_REDUCE, OP_GATHER = range(6)
OP_SCATTER, OP_ALL_TO_ALL, OP_BARRIER, OP_SEND, OP_RECV = range(6, 11)
ENFORCEMENT_OFF, ENFORCEMENT_AUDIT, ENFORCEMENT_ENFORCE = 1, 2, 3
TRAFFIC_GRADIENT, TRAFFIC_OURS, TRAFFIC_OTHER = range(3)
OUTCOME_OK, OUTCOME_FAILED, OUTCOME_UNKNOWN = range(3)
REJECTION_NONE, REJECTION_NO_REPLICAS, REJECTION_NO_BUCKETS, REJECTION_HOOK_HELD, REJECTION_NO_WIRE_TYPE = range(5)
REJECTION_NOTHING_GATHERED, REJECTION_INVALID, REJECTION_LEFT_ALONE, REJECTION_FIXED = range(5, 9)
WIRE_AS_GIVEN, WIRE_GRADIENT, WIRE_BF16, WIRE_FP16 = range(4)
RESHARD_AS_GIVEN, RESHARD_EVERY_MICRO_STEP, RESHARD_WINDOW = range(3)
HEADROOM_UNKNOWN = 2**63 - 1
VOTE_CAPACITY = 64

Log = CFUNCTYPE(None, c_void_p, c_uint32, c_char_p, c_char_p)
StoreSet = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_size_t, c_int64)
StoreGet = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_size_t), c_int64)


# For the modules beside this one, which leave ctypes to it.
addressof, create_string_buffer, memmove, string_at = ctypes.addressof, ctypes.create_string_buffer, ctypes.memmove, ctypes.string_at
Pointer, Number = ctypes.c_void_p, ctypes.c_uint32


def words(count: int, values: Iterable[int] = ()) -> ctypes.Array[c_int64]:
    return (c_int64 * count)(*values)


class Struct(ctypes.Structure):
    """One that begins with struct_size, which is set; the other fields are zero or as given."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Error(ctypes.Structure):
    _fields_ = [("code", c_int32), ("reserved", c_uint32), ("message", c_char * 1016)]


class StoreCallbacks(Struct):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("user", c_void_p), ("set", StoreSet), ("get", StoreGet)]


class LedgerOptions(Struct):
    _fields_ = [
        *[(name, c_uint32) for name in ("struct_size", "accumulate", "mode", "windows", "strict", "rank", "world_size")],
        ("local_rank", c_int32),
        *[(name, c_uint32) for name in ("roles", "reserved")],
        ("store", c_void_p),
        *[(name, c_char_p) for name in ("job_name", "daemon_dir", "facts", "scope")],
        *[(name, c_int64) for name in ("deadline_ns", "handshake_deadline_ns")],
        ("log", Log),
        ("log_user", c_void_p),
    ]


class Place(Struct):
    _fields_ = [
        *[(name, c_uint32) for name in ("struct_size", "in_micro_step")],
        ("window_index", c_uint64),
        *[(name, c_uint32) for name in ("micro_steps", "mode")],
    ]


class Vote(Struct):
    _fields_ = [
        *[(name, c_uint32) for name in ("struct_size", "contributes", "skipped", "discard", "out_of_data", "sums", "divisor", "reserved")],
        *[(name, c_int64) for name in ("parity", "headroom_bytes", "staged")],
    ]


_VERDICT_FLAGS = ("any_discard", "all_out_of_data", "any_out_of_data", "any_sums", "min_divisor", "max_divisor", "parity_differs")


class Verdict(Struct):
    _fields_ = [
        *[(name, c_uint32) for name in ("struct_size", "differs", "incompatible", "unequal", "min_micro_steps", "max_micro_steps")],
        *[(name, c_uint32) for name in ("all_contribute", "any_contribute", "min_skipped", "max_skipped")],
        *[(name, c_uint32) for name in (*_VERDICT_FLAGS, "staged_equal")],
        *[(name, c_int64) for name in ("min_headroom_bytes", "staged")],
    ]


class WindowEnd(Struct):
    _fields_ = [
        *[(name, c_uint32) for name in ("struct_size", "stepped", "failed", "discarded", "min_micro_steps", "max_micro_steps")],
        *[(name, c_uint32) for name in ("active_ranks", "disagreed", "skipped", "reserved")],
        *[(name, c_int64) for name in ("item_count_local", "item_count_global", "wait_ns")],
    ]


class Window(Struct):
    _fields_ = [
        *[(name, c_uint32) for name in ("struct_size", "kind")],
        ("window_index", c_uint64),
        *[(name, c_uint32) for name in ("micro_steps", "min_micro_steps", "max_micro_steps", "active_ranks", "late", "disagreed")],
        ("item_count", c_int64),
        *[(name, c_uint32) for name in ("policy_adopted", "policy_offered")],
    ]


class Policy(Struct):
    _fields_ = [
        *[(name, c_uint32) for name in ("struct_size", "mode", "wire", "reshard", "enforcement", "reserved")],
        *[(name, c_uint64) for name in ("bucket_bytes", "version", "adopted_window")],
    ]


_STATS_1_0 = (
    "micro_steps steps windows_full windows_partial windows_empty windows_late windows_unstepped windows_mismatched windows_disagreed "
    "ballots refused warnings items reductions_intended reductions_issued reductions_suppressed reductions_late gradient_collectives "
    "gradient_bytes exposed_ns wait_ns micro_step_ns window_ns"
)
_STATS_1_1 = "reductions_declared_extra overrides windows_discarded micro_steps_skipped"


class Stats(Struct):
    _fields_ = [
        *[(name, c_uint32) for name in ("struct_size", "linked")],
        *[(name, c_uint64) for name in (*_STATS_1_0.split(), *_STATS_1_1.split())],
    ]


_CELL = (
    "intended gradient_issued ours_issued other_issued gradient_bytes ours_bytes other_bytes tensors completed gradient_completed "
    "failed unknown duration_ns"
)


class CollectiveStats(Struct):
    _fields_ = [*[(name, c_uint32) for name in ("struct_size", "reserved")], *[(name, c_uint64) for name in _CELL.split()]]


class RoleStats(Struct):
    _fields_ = [
        *[(name, c_uint32) for name in ("struct_size", "reserved")],
        *[(name, c_uint64) for name in ("intended", "issued", "suppressed", "late", "declared_extra")],
    ]


# Handles, buffers and errors go by address, as plain numbers: ctypes then has nothing to convert.
_LEDGER = c_void_p
_ERROR = c_void_p
# These block. They are called without Python's lock; the others keep it, since letting another thread have it costs more than they do.
BLOCKING: dict[str, tuple[Any, list[Any]]] = {
    "gg_ledger_create": (c_int32, [POINTER(LedgerOptions), POINTER(c_void_p), _ERROR]),
    "gg_ledger_arrived": (c_int32, [_LEDGER, _ERROR]),
    "gg_ledger_missing": (c_int32, [_LEDGER, c_void_p, c_size_t, _ERROR]),
    "gg_ledger_fail": (c_int32, [_LEDGER, c_char_p, _ERROR]),
    "gg_ledger_close": (c_int32, [_LEDGER, _ERROR]),
    "gg_ledger_destroy": (None, [_LEDGER]),
}
PROMPT: dict[str, tuple[Any, list[Any]]] = {
    "gg_abi_version": (c_uint32, []),
    "gg_version": (c_char_p, []),
    "gg_status_name": (c_char_p, [c_int32]),
    "gg_store_create": (c_int32, [POINTER(StoreCallbacks), POINTER(c_void_p), _ERROR]),
    "gg_store_destroy": (None, [c_void_p]),
    "gg_ledger_enforcement": (c_uint32, [_LEDGER]),
    "gg_ledger_micro_step_begin": (c_int32, [_LEDGER, c_uint32, c_void_p, _ERROR]),
    "gg_ledger_micro_step_end": (c_int32, [_LEDGER, _ERROR]),
    "gg_ledger_micro_step_abandon": (c_int32, [_LEDGER, _ERROR]),
    "gg_ledger_place": (c_int32, [_LEDGER, POINTER(Place), _ERROR]),
    "gg_ledger_vote": (c_int32, [_LEDGER, POINTER(Vote), c_void_p, c_uint32, c_void_p, _ERROR]),
    "gg_ledger_verdict": (c_int32, [_LEDGER, c_void_p, c_uint32, POINTER(Verdict), _ERROR]),
    "gg_ledger_describe": (c_int32, [_LEDGER, c_void_p, c_uint32, c_void_p, c_size_t, _ERROR]),
    "gg_ledger_late_begin": (c_int32, [_LEDGER, _ERROR]),
    "gg_ledger_window_close": (c_int32, [_LEDGER, POINTER(WindowEnd), POINTER(Window), _ERROR]),
    "gg_ledger_set_mode": (c_int32, [_LEDGER, c_uint32, _ERROR]),
    "gg_ledger_predict": (c_int32, [_LEDGER, c_uint32, _ERROR]),
    "gg_ledger_policy_offered": (c_int32, [_LEDGER, POINTER(Policy), _ERROR]),
    "gg_ledger_policy_answer": (c_int32, [_LEDGER, c_uint64, c_uint32, _ERROR]),
    "gg_ledger_policy_get": (c_int32, [_LEDGER, POINTER(Policy), _ERROR]),
    "gg_ledger_warn": (c_int32, [_LEDGER, c_char_p, c_char_p, _ERROR]),
    "gg_ledger_declare_extra": (c_int32, [_LEDGER, c_uint32, c_uint32, _ERROR]),
    "gg_ledger_collective_issued": (c_int64, [_LEDGER, c_uint32, c_uint32, c_uint32, c_uint64, c_uint32]),
    "gg_ledger_collective_done": (None, [_LEDGER, c_uint32, c_uint32, c_uint32, c_int64, c_uint32]),
    "gg_ledger_issued": (c_uint32, [_LEDGER, c_uint32]),
    "gg_ledger_trainer_issued": (c_uint32, [_LEDGER, c_uint32]),
    "gg_ledger_role_stats_get": (c_int32, [_LEDGER, c_uint32, POINTER(RoleStats), _ERROR]),
    "gg_ledger_stats_get": (c_int32, [_LEDGER, POINTER(Stats), _ERROR]),
    "gg_ledger_collective_stats_get": (c_int32, [_LEDGER, c_uint32, c_uint32, POINTER(CollectiveStats), _ERROR]),
}


def _path() -> str:
    given = os.environ.get("GRADGATE_LIBRARY")
    own = pathlib.Path(__file__).with_name("lib") / "libgradgate.so"
    if given or own.exists():
        return given or str(own)
    raise ImportError(
        f"{own} is missing: install the package with `pip install ./shim/python`, or let GRADGATE_LIBRARY name a built libgradgate.so"
    )


def check_abi(version: int, path: str) -> None:
    """ImportError, with both versions, unless a library of that version can serve this package."""
    major, minor = version >> 16, version & 0xFFFF
    if major == ABI_MAJOR and minor >= ABI_MINOR:
        return
    raise ImportError(
        f"{path} has ABI {major}.{minor}, this package needs {ABI_MAJOR}.{ABI_MINOR} or a later {ABI_MAJOR}.x: "
        "install a library and a package of the same version"
    )


@functools.cache
def library() -> types.SimpleNamespace:
    """The functions of gradgate.h that are mirrored here; loaded at the first call. ImportError says what is wrong."""
    path = _path()
    try:
        blocking, prompt = ctypes.CDLL(path), ctypes.PyDLL(path)
        abi_version = prompt.gg_abi_version
    except (OSError, AttributeError) as error:
        raise ImportError(f"{path} is not a libgradgate.so that loads here: {error}") from error
    abi_version.restype = c_uint32
    check_abi(abi_version(), path)
    functions = types.SimpleNamespace()
    for loaded, signatures in ((blocking, BLOCKING), (prompt, PROMPT)):
        for name, (result, arguments) in signatures.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
            setattr(functions, name, function)
    return functions


def address(name: str) -> int:
    """Address of a function of the library, for callers that are not Python."""
    return ctypes.cast(getattr(library(), name), c_void_p).value or 0
