import unittest

import layers
from sample import SampleTest


class LayersTest(SampleTest):
    module = layers

    def include(self, path: str, *names: str) -> dict[str, str]:
        return {path: "".join(f"#include {n if n.startswith('<') else chr(34) + n + chr(34)}\n" for n in names)}

    def test_allowed_directions(self) -> None:
        self.assert_clean(self.include("shim/capi/session.cc", "shim/reduce/bucket.h", "shim/core/status.h", "shim/capi/error.h"))
        self.assert_clean(self.include("shim/capi/session.cc", "gradgate/gradgate.h", "shim/include/gradgate/gradgate.h"))
        self.assert_clean(self.include("shim/stats/recorder.h", "proto/shm/stats_page.h", "<atomic>", "<sys/mman.h>"))
        self.assert_clean(self.include("daemon/rpc/server.cc", "client/target.h", "daemon/node/registry.h", "grpcpp/server.h"))
        self.assert_clean(self.include("daemon/main/main.cc", "daemon/rpc/server.h", "daemon/metrics/exporter.h", "absl/flags/flag.h"))
        self.assert_clean(self.include("daemon/metrics/exporter.cc", "prometheus/exposer.h"))
        self.assert_clean(self.include("client/cli/plan_command.cc", "client/planner/plan.h"))
        self.assert_clean(self.include("daemon/planner/measure.cc", "client/planner/plan.h", "gradgate/v1/plan.pb.h"))
        self.assert_clean(self.include("client/cli/main.cc", "client/target.h", "gradgate/v1/stats.pb.h", "CLI/CLI.hpp"))
        self.assert_clean(self.include("shim/reduce/gloo/gloo.cc", "gloo/allreduce.h", "shim/reduce/transport.h"))

    def test_top_sees_everything(self) -> None:
        names = ["daemon/node/registry.h", "shim/core/status.h", "client/target.h", "absl/status/status.h", "gtest/gtest.h"]
        self.assert_clean(self.include("tests/system/x_test.cc", *names))
        self.assert_clean(self.include("bench/x.cc", *names, "benchmark/benchmark.h"))

    def test_upward(self) -> None:
        self.assert_one(
            self.include("shim/core/engine.h", "shim/reduce/bucket.h"), "shim/core/engine.h:1", "(level 1) may not see shim/reduce"
        )
        self.assert_one(
            self.include("daemon/node/a.cc", "<map>", "daemon/rpc/server.h"), "daemon/node/a.cc:2", "(level 2) may not see daemon/rpc"
        )
        self.assert_one(
            self.include("client/target.h", "client/cli/table.h"), "client/target.h:1", "client (level 3) may not see client/cli"
        )

    def test_same_level(self) -> None:
        self.assert_one(
            self.include("shim/link/link.h", "shim/stats/page.h"), "shim/link/link.h:1", "shim/link (level 2) may not see shim/stats"
        )
        self.assert_one(self.include("daemon/node/a.cc", "daemon/store/file.h"), "daemon/node/a.cc:1", "may not see daemon/store")
        self.assert_one(self.include("daemon/metrics/a.cc", "daemon/rpc/server.h"), "daemon/metrics/a.cc:1", "may not see daemon/rpc")

    def test_columns(self) -> None:
        self.assert_one(self.include("daemon/node/a.cc", "shim/core/status.h"), "daemon/node/a.cc:1", "columns meet only in proto")
        self.assert_one(self.include("shim/link/a.cc", "daemon/node/b.h"), "shim/link/a.cc:1", "columns meet only in proto")
        self.assert_one(self.include("shim/capi/a.cc", "client/target.h"), "shim/capi/a.cc:1", "columns meet only in proto")
        self.assert_one(self.include("client/a.cc", "daemon/node/b.h"), "client/a.cc:1", "columns meet only in proto")
        self.assert_one(self.include("daemon/metrics/a.cc", "client/target.h"), "daemon/metrics/a.cc:1", "columns meet only in proto")
        self.assert_one(self.include("client/a.cc", "gradgate/gradgate.h"), "client/a.cc:1", "client may not see shim/include")

    def test_nothing_sees_top(self) -> None:
        for top in ("tests/support/x.h", "bench/x.h", "examples/digits/network.h"):
            self.assert_one(self.include("daemon/main/main.cc", top), "daemon/main/main.cc:1", "nothing below includes those")

    def test_libraries(self) -> None:
        for path, name in [
            ("shim/link/a.cc", "absl/strings/str_cat.h"),
            ("shim/stats/a.cc", "google/protobuf/message.h"),
            ("shim/stats/a.cc", "gradgate/v1/stats.pb.h"),
            ("shim/capi/a.cc", "grpcpp/channel.h"),
            ("daemon/node/a.cc", "grpcpp/server.h"),
            ("daemon/node/a.cc", "gradgate/v1/stats.grpc.pb.h"),
            ("daemon/main/a.cc", "grpc/grpc.h"),
            ("daemon/rpc/a.cc", "prometheus/registry.h"),
            ("shim/reduce/a.cc", "gloo/context.h"),
            ("shim/capi/a.cc", "torch/torch.h"),
            ("client/a.cc", "gtest/gtest.h"),
        ]:
            with self.subTest(path=path, name=name):
                self.assert_one(self.include(path, name), f"{path}:1", f"{name} may be included in")
                self.assert_one(self.include(path, f"<{name}>"), f"{path}:1", f"{name} may be included in")

    def test_command_line_tool_has_no_grpc(self) -> None:
        for name in ("grpcpp/channel.h", "gradgate/v1/stats.grpc.pb.h"):
            self.assert_one(self.include("client/cli/a.cc", name), "client/cli/a.cc:1", "use the client library")

    def test_specified_bytes_are_standard_only(self) -> None:
        self.assert_clean(self.include("proto/shm/stats_page.h", "<atomic>", "proto/shm/types.h"))
        self.assert_one(self.include("proto/shm/stats_page.h", "<sys/mman.h>"), "proto/shm/stats_page.h:1", "only the C++ standard library")
        self.assert_one(self.include("proto/link/frames.h", "proto/shm/types.h"), "proto/link/frames.h:1", "only the C++ standard library")

    def test_core_sees_no_clock_or_socket(self) -> None:
        for name in ("chrono", "time.h", "sys/socket.h", "unistd.h", "thread"):
            self.assert_one(self.include("shim/core/engine.cc", f"<{name}>"), "shim/core/engine.cc:1", "sees no clock")

    def test_public_headers(self) -> None:
        c, cpp = "shim/include/gradgate/gradgate.h", "shim/include/gradgate/gradgate.hpp"
        self.assert_clean(self.include(c, "<stdint.h>", "<stddef.h>"))
        self.assert_clean(self.include(cpp, "<string>", "gradgate/gradgate.h"))
        self.assert_one(self.include(c, "<stdio.h>"), f"{c}:1", "only stdint.h and stddef.h")
        self.assert_one(self.include(cpp, "<unistd.h>"), f"{cpp}:1", "only the standard library")
        self.assert_one(self.include(cpp, "shim/core/status.h"), f"{cpp}:1", "only the standard library")

    def test_unknown_names(self) -> None:
        self.assert_one(self.include("client/a.cc", "target.h"), "client/a.cc:1", "write the whole path")
        files = {**self.include("daemon/new/a.cc", "daemon/new/b.h"), "daemon/new/b.h": ""}
        self.assert_one(files, "daemon/new/a.cc:1", "no level is declared for daemon/new/a.cc")


if __name__ == "__main__":
    unittest.main()
