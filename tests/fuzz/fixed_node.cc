#include "tests/fuzz/fixed_node.h"

#include <string>

#include "tests/fuzz/target.h"

namespace gradgate::fuzz {

using testing::FakeIdentity;
using testing::FakePage;

FixedNode::FixedNode() {
  for (int i = 0; i < 6; ++i) {
    const FakeIdentity identity{.job_name = i < 3 ? "job" : "job-" + std::to_string(i),
                                .run_id_bytes = std::string(16, static_cast<char>(0x11 + i / 2)),
                                .attempt = static_cast<uint32_t>(i % 2),
                                .wall_time_ns = 1'700'000'000'000'000'000 + i / 3};
    Connect(identity, i);
    if (i == 0) Connect({.run_id_bytes = identity.run_id_bytes, .rank = 1}, 2);
  }
  // All but the first, whose page is read at each call.
  for (uint64_t connection = 2; connection <= 7; ++connection) registry.End(connection, static_cast<Ending>(connection % 3));
}

void FixedNode::Connect(const FakeIdentity& identity, int windows) {
  pages.push_back(std::make_unique<FakePage>(identity));
  for (int i = 0; i < windows * 3; ++i) pages.back()->CloseWindow();
  const auto registration = registry.Register(1000, pages.back()->Map());
  FUZZ_CHECK(registration.ok(), registration.status().ToString());
}

}  // namespace gradgate::fuzz
