import unittest

import protos
from sample import SampleTest

PATH = "proto/gradgate/v1/x.proto"
GOOD = """syntax = "proto3";
package gradgate.v1;
import "google/protobuf/duration.proto";

// Answers.
service XService {
  // Lists.
  rpc ListX(ListXRequest) returns (stream ListXResponse);
  // Gets.
  rpc GetX(GetXRequest) returns (GetXResponse) {
    option deprecated = true;
  }
}

// A kind.
enum SyncMode {
  // Not set.
  SYNC_MODE_UNSPECIFIED = 0;
  SYNC_MODE_WINDOW = 1 [deprecated = true];  // Once.
}

// A thing.
message X {
  reserved 4;
  // A name.
  string name = 1;
  // Of all.
  repeated google.protobuf.Duration wait_duration = 2;
  // By rank.
  map<int32, string> ranks = 3;
  // One of two.
  oneof which {
    // First.
    bool first = 5;
  }
  // Its kind.
  enum Kind {
    // Not set.
    KIND_UNSPECIFIED = 0;
  }
}
"""


class ProtosTest(SampleTest):
    module = protos

    def changed(self, old: str, new: str) -> dict[str, str]:
        self.assertEqual(GOOD.count(old), 1, old)
        return {PATH: GOOD.replace(old, new)}

    def line(self, text: str) -> str:
        return f"{PATH}:{GOOD[: GOOD.index(text)].count(chr(10)) + 1}"

    def test_good(self) -> None:
        self.assert_clean({PATH: GOOD})

    def test_each_thing_needs_a_comment(self) -> None:
        for comment, what in [
            ("// Answers.", "service XService"),
            ("// Lists.", "rpc ListX"),
            ("// A kind.", "enum SyncMode"),
            ("// A thing.", "message X"),
            ("// A name.", "field name"),
            ("// Of all.", "field wait_duration"),
            ("// By rank.", "field ranks"),
            ("// One of two.", "oneof which"),
            ("// First.", "field first"),
            ("// Its kind.", "enum Kind"),
            ("// Once.", "enum value SYNC_MODE_WINDOW"),
        ]:
            with self.subTest(what=what):
                found = self.violations(self.changed(comment, ""))
                self.assertEqual(len(found), 1, found)
                self.assertIn(f"{what} has no comment", found[0])

    def test_enum_prefix(self) -> None:
        where = self.line("  SYNC_MODE_WINDOW")
        self.assert_one(self.changed("SYNC_MODE_WINDOW", "WINDOW"), where, "call it SYNC_MODE_WINDOW")

    def test_enum_zero(self) -> None:
        where = self.line("  SYNC_MODE_UNSPECIFIED")
        self.assert_one(self.changed("SYNC_MODE_UNSPECIFIED = 0", "SYNC_MODE_EVERY = 0"), where, "SYNC_MODE_UNSPECIFIED = 0")
        self.assert_one(self.changed("SYNC_MODE_UNSPECIFIED = 0", "SYNC_MODE_UNSPECIFIED = 2"), where, "SYNC_MODE_UNSPECIFIED = 0")

    def test_rpc_messages(self) -> None:
        where = self.line("  rpc ListX")
        self.assert_one(self.changed("(ListXRequest)", "(XQuery)"), where, "ListXRequest of its own")
        self.assert_one(self.changed("(stream ListXResponse)", "(stream X)"), where, "ListXResponse of its own")

    def test_names(self) -> None:
        self.assert_one(self.changed("string name = 1", "string theName = 1"), self.line("  string name"), "write fields like_this")
        self.assert_one(self.changed("message X {", "message x_y {"), self.line("message X {"), "LikeThis")

    def test_package(self) -> None:
        self.assert_one(self.changed("package gradgate.v1", "package gradgate.v2"), f"{PATH}:1", "write package gradgate.v1;")


if __name__ == "__main__":
    unittest.main()
