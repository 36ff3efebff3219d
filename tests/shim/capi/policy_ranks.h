// Daemons of a job's ranks, one each, that offer them what the test says.

#ifndef GRADGATE_TESTS_SHIM_CAPI_POLICY_RANKS_H_
#define GRADGATE_TESTS_SHIM_CAPI_POLICY_RANKS_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <bit>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "proto/shm/stats_page.h"
#include "tests/shim/link/fake_daemon.h"

namespace gradgate::test {

class PolicyRanks {
 public:
  explicit PolicyRanks(uint32_t world_size) : connections_(world_size, -1) {
    char name[] = "/tmp/gg_policy_XXXXXX";
    EXPECT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      std::filesystem::create_directory(directory(rank));
      daemons_.push_back(std::make_unique<FakeDaemon>(directory(rank)));
    }
  }
  ~PolicyRanks() {
    daemons_.clear();
    std::filesystem::remove_all(root_);
  }

  std::string directory(uint32_t rank) const { return root_ + "/" + std::to_string(rank); }

  // From the rank's own thread, between windows: it is read when its open window closes.
  void Offer(uint32_t rank, const link::PolicyFrame& policy) {
    if (connections_[rank] < 0) {
      connections_[rank] = daemons_[rank]->AcceptHello();
      FakeDaemon::Send(connections_[rank], Welcome());
    }
    FakeDaemon::Send(connections_[rank], policy);
  }

 private:
  std::string root_;
  std::vector<std::unique_ptr<FakeDaemon>> daemons_;
  std::vector<int> connections_;
};

// The record of a window that was closed.
inline page::WindowRecord RecordOf(const page::StatsPage& page, uint64_t window) {
  struct Packed {
    uint64_t words[page::kWindowWords];
  } packed;
  for (uint32_t i = 0; i < page::kWindowWords; ++i)
    packed.words[i] = page.windows[window % page::kWindowSlots].words[i].load(std::memory_order_relaxed);
  return std::bit_cast<page::WindowRecord>(packed);
}

// Where a rank tells its daemon that it is with policies.
struct Place {
  uint64_t in_force, adopted_window, staged, rejected;
  PolicyRejection rejection;
  bool operator==(const Place&) const = default;
};

inline void PrintTo(const Place& place, std::ostream* os) {
  *os << "in force " << place.in_force << " from window " << place.adopted_window << ", staged " << place.staged
      << ", rejected " << place.rejected << " because " << static_cast<int>(place.rejection);
}

inline Place PlaceOf(const page::StatsPage& page) {
  const auto load = [](const page::U64& word) { return word.load(std::memory_order_relaxed); };
  const page::PageTotals& totals = page.totals;
  return {load(totals.policy_version), load(totals.policy_adopted_window), load(totals.policy_staged_version),
          load(totals.policy_rejected_version), static_cast<PolicyRejection>(load(totals.policy_rejection))};
}

}  // namespace gradgate::test

#endif  // GRADGATE_TESTS_SHIM_CAPI_POLICY_RANKS_H_
