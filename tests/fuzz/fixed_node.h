// A daemon's registry with a fixed set of jobs, for targets that ask it. Inputs do not change it.
//
// Thread class: one thread.

#ifndef GRADGATE_TESTS_FUZZ_FIXED_NODE_H_
#define GRADGATE_TESTS_FUZZ_FIXED_NODE_H_

#include <memory>
#include <vector>

#include "daemon/node/clock.h"
#include "daemon/node/registry.h"
#include "tests/daemon/fake_page.h"

namespace gradgate::fuzz {

class FixedClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixSeconds(1'800'000'000); }
};

// Six jobs, three of them of the name "job", the others "job-3" to "job-5"; ranks that run, ended and were lost.
struct FixedNode {
  FixedNode();

  FixedClock clock;
  Registry registry{RegistryOptions{.keep_ended = absl::InfiniteDuration()}, &clock};
  std::vector<std::unique_ptr<testing::FakePage>> pages;

 private:
  void Connect(const testing::FakeIdentity& identity, int windows);
};

}  // namespace gradgate::fuzz

#endif  // GRADGATE_TESTS_FUZZ_FIXED_NODE_H_
