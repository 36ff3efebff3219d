"""abi.py finds each kind of break of the C interface, in the real header, and names it."""

from __future__ import annotations

import unittest

import abi


class Abi(unittest.TestCase):
    header = abi.HEADER.read_text(encoding="utf-8")
    exports = abi.EXPORTS.read_text(encoding="utf-8")

    def setUp(self) -> None:
        self.before = abi.describe(self.header, self.exports)

    def after(self, old: str, new: str) -> list[str]:
        """What is said once `old` has become `new`, in the header or the map of symbols."""
        self.assertIn(old, self.header + self.exports)
        return abi.breaks(self.before, abi.describe(self.header.replace(old, new), self.exports.replace(old, new)))

    def test_keeps_its_promise(self) -> None:
        self.assertEqual(abi.main(), 0)

    def test_layout_is_the_compilers(self) -> None:
        """Pinned by static_assert in gradgate_c_test.cc."""
        sizes = {name: fields[-1][2] + fields[-1][3] for name, fields in self.before["structs"].items()}
        self.assertEqual((sizes["gg_error"], sizes["gg_policy"], sizes["gg_window_end"]), (1024, 48, 64))
        pinned = "".join((abi.ROOT / f"tests/shim/capi/{n}_test.cc").read_text(encoding="utf-8") for n in ("gradgate_c", "ledger_c"))
        for name, size in sizes.items():
            self.assertIn(f"sizeof({name}) == {-(-size // 8) * 8} ", pinned, name)

    def test_each_break_is_named(self) -> None:
        for old, new, said in (
            ("GG_MODE_AUTO = 4", "GG_MODE_AUTO = 5", "constants: MODE_AUTO was 4, is 5"),
            ("  GG_DIVIDE_NONE = 3", "", "constants: DIVIDE_NONE was 3, is gone"),
            ("typedef uint32_t gg_mode;", "typedef uint64_t gg_mode;", "types: gg_mode was uint32_t, is uint64_t"),
            ("  uint64_t windows_full;", "  uint32_t windows_full;", "gg_stats.windows_full: was"),
            ("  uint64_t windows_full;\n", "", "gg_stats.windows_full: was"),
            ("  uint64_t steps;", "  uint64_t stepped;", "gg_stats.steps: was"),
            (
                "  gg_dtype dtype;\n  uint32_t reserved;",
                "  gg_dtype dtype;\n  uint32_t reserved;\n  uint64_t more;",
                "gg_tensor has new fields",
            ),
            (
                "GG_API gg_status_t gg_session_close(gg_session* session,",
                "GG_API gg_status_t gg_session_close(uint32_t how,",
                "functions: gg_session_close",
            ),
            (
                "GG_API void gg_session_destroy(gg_session* session);",
                "",
                "functions: gg_session_destroy was ['void', 'gg_session*'], is gone",
            ),
            ("    gg_stats_get;\n", "", "symbols: gg_stats_get was GRADGATE_1, is gone"),
            ("GRADGATE_1.2 {", "GRADGATE_1.4 {", "symbols: gg_ledger_predict was GRADGATE_1.2, is GRADGATE_1.4"),
            ("#define GG_ABI_MINOR 3", "#define GG_ABI_MINOR 2", "the version was 1.3, is 1.2"),
            ("#define GG_ABI_MAJOR 1", "#define GG_ABI_MAJOR 2", "the version was 1.3, is 2.3"),
        ):
            with self.subTest(said=said, new=new):
                found = self.after(old, new)
                self.assertTrue(any(line.startswith(said) for line in found), found)

    def test_additions_need_a_minor_and_nothing_else(self) -> None:
        old = "  uint64_t micro_steps_skipped; /* to which this rank contributed nothing */\n"
        grown = self.header.replace(old, old + "  uint64_t more;\n")
        found = abi.breaks(self.before, abi.describe(grown, self.exports))
        self.assertEqual(found, ["gg_stats.more: added, and the version is still 1.3; raise GG_ABI_MINOR"])
        raised = grown.replace("#define GG_ABI_MINOR 3", "#define GG_ABI_MINOR 4")
        self.assertEqual(abi.breaks(self.before, abi.describe(raised, self.exports)), [])


if __name__ == "__main__":
    unittest.main()
