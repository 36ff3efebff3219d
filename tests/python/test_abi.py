"""_abi.py mirrors gradgate.h: constants, structs field by field, signatures. What differs is named."""

from __future__ import annotations

import ctypes
import pathlib
import unittest
from typing import Any

import header as c
from gradgate import _abi

HEADER = pathlib.Path(__file__).resolve().parents[2] / "shim" / "include" / "gradgate" / "gradgate.h"
# What only sessions use, and Python has none.
SESSIONS = ("FLOAT", "DIVIDE_")
MIRRORS: dict[str, Any] = {
    "gg_error": _abi.Error,
    "gg_store_callbacks": _abi.StoreCallbacks,
    "gg_ledger_options": _abi.LedgerOptions,
    "gg_place": _abi.Place,
    "gg_vote": _abi.Vote,
    "gg_verdict": _abi.Verdict,
    "gg_window_end": _abi.WindowEnd,
    "gg_window": _abi.Window,
    "gg_policy": _abi.Policy,
    "gg_stats": _abi.Stats,
    "gg_collective_stats": _abi.CollectiveStats,
    "gg_role_stats": _abi.RoleStats,
}
CALLBACKS = (_abi.Log, _abi.StoreSet, _abi.StoreGet)
SCALARS: dict[str, Any] = {
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "const char*": ctypes.c_char_p,
    "void": None,
}


def fits(kind: str, mirror: Any, header: c.Header) -> bool:
    """Whether a ctypes type is that of C. An address may be a number (c_void_p) wherever C has a pointer."""
    kind = header.aliases.get(kind, kind)
    kind = header.aliases.get(kind, kind)
    if kind in SCALARS:
        return mirror is SCALARS[kind]
    if "(*)" in kind:
        result, _, arguments = kind.partition("(*)")
        types = arguments.strip("()").split(", ")
        return (
            mirror in CALLBACKS
            and fits(result, mirror._restype_, header)
            and len(types) == len(mirror._argtypes_)
            and all(fits(t, m, header) for t, m in zip(types, mirror._argtypes_, strict=True))
        )
    if kind.endswith("]"):
        element, _, count = kind.rstrip("]").partition("[")
        return bool(element == "char" and mirror is ctypes.c_char * int(count))
    if not kind.endswith("*"):
        return False
    pointee = kind[:-1]
    if mirror is ctypes.c_void_p:
        return True
    if pointee.endswith("*"):
        return mirror is ctypes.POINTER(ctypes.c_void_p)
    return mirror is ctypes.POINTER(MIRRORS.get(pointee, SCALARS.get(pointee)))


def differences(header: c.Header) -> list[str]:
    found = []
    for name, value in header.constants.items():
        if not name.startswith(SESSIONS) and getattr(_abi, name, None) != value:
            found.append(f"GG_{name} is {value}, in Python {getattr(_abi, name, 'missing')}")
    for name, value in vars(_abi).items():
        if name.isupper() and type(value) is int and name not in header.constants:
            found.append(f"{name} is not in the header")
    for name, mirror in MIRRORS.items():
        fields = header.structs.get(name, [])
        ours = [(str(f[0]), f[1]) for f in mirror._fields_]
        if [f for f, _ in fields] != [f for f, _ in ours]:
            found.append(f"{name} has {[f for f, _ in fields]}, in Python {[f for f, _ in ours]}")
        else:
            found += [f"{name}.{f} is {k}, in Python {m}" for (f, k), (_, m) in zip(fields, ours, strict=True) if not fits(k, m, header)]
    signatures = {**_abi.BLOCKING, **_abi.PROMPT}
    for name in header.functions:
        if name.startswith("gg_ledger_") and name not in signatures:
            found.append(f"{name} is missing in Python")
    for name, (result, arguments) in signatures.items():
        if name not in header.functions:
            found.append(f"{name} is not in the header")
            continue
        c_result, c_arguments = header.functions[name]
        types = [(c_result, result), *zip(c_arguments, arguments, strict=False)]
        if len(c_arguments) != len(arguments) or not all(fits(k, m, header) for k, m in types):
            found.append(f"{name}: {c_result}({', '.join(c_arguments)}), in Python {result}{arguments}")
    return found


class Abi(unittest.TestCase):
    text = HEADER.read_text(encoding="utf-8")

    def test_mirrors_the_header(self) -> None:
        self.assertEqual(differences(c.parse(self.text)), [])

    def test_what_differs_is_named(self) -> None:
        for was, becomes, named in (
            ("GG_MODE_AUTO = 4", "GG_MODE_AUTO = 5", "GG_MODE_AUTO is 5, in Python 4"),
            ("#define GG_ABI_MINOR 3", "#define GG_ABI_MINOR 4", "GG_ABI_MINOR is 4, in Python 3"),
            ("GG_OUTCOME_UNKNOWN = 2", "GG_OUTCOME_UNKNOWN = 2, GG_OUTCOME_LOST = 3", "GG_OUTCOME_LOST is 3, in Python missing"),
            ("  int64_t parity; ", "  uint64_t parity; ", "gg_vote.parity is uint64_t"),
            ("  uint32_t skipped;     /*", "  uint32_t leftout;     /*", "gg_vote has"),
            ("  uint64_t declared_extra;", "  uint64_t declared_extra; uint64_t more;", "gg_role_stats has"),
            (
                "gg_ledger_issued(const gg_ledger* ledger, gg_group group)",
                "gg_ledger_issued(const gg_ledger* ledger)",
                "gg_ledger_issued: ",
            ),
            ("GG_API void gg_ledger_destroy(", "GG_API void gg_ledger_free(", "gg_ledger_free is missing in Python"),
            ("size_t value_bytes, int64_t deadline_ns);\n  /* Reads", "size_t value_bytes);\n  /* Reads", "gg_store_callbacks.set is "),
        ):
            changed = self.text.replace(was, becomes)
            self.assertNotEqual(changed, self.text, was)
            self.assertTrue(any(named in line for line in differences(c.parse(changed))), (named, differences(c.parse(changed))))

    def test_sizes_are_those_of_c(self) -> None:
        """Pinned by static_assert on the other side."""
        sizes = {name: ctypes.sizeof(mirror) for name, mirror in MIRRORS.items()}
        tests = HEADER.parents[3] / "tests" / "shim" / "capi"
        pinned = "".join((tests / f"{name}_test.cc").read_text(encoding="utf-8") for name in ("gradgate_c", "ledger_c"))
        for name, size in sizes.items():
            self.assertIn(f"sizeof({name}) == {size} ", pinned)

    def test_library_of_another_version_is_refused_with_both(self) -> None:
        _abi.check_abi(_abi.ABI_MAJOR << 16 | _abi.ABI_MINOR + 1, "x.so")
        for version in (_abi.ABI_MAJOR << 16 | _abi.ABI_MINOR - 1, (_abi.ABI_MAJOR + 1) << 16 | _abi.ABI_MINOR):
            with self.assertRaises(ImportError) as raised:
                _abi.check_abi(version, "x.so")
            self.assertIn(f"x.so has ABI {version >> 16}.{version & 0xFFFF}, this package needs 1.3", str(raised.exception))

    def test_addresses_are_the_library_s(self) -> None:
        self.assertNotEqual(_abi.address("gg_ledger_collective_issued"), 0)
        self.assertNotEqual(_abi.address("gg_ledger_collective_issued"), _abi.address("gg_ledger_collective_done"))


if __name__ == "__main__":
    unittest.main()
