// A job of ledgers inside a test: one per rank, on a thread of its own, over an in-memory store. The framework is the test: it
// issues the collectives, and exchanges the ballots' words.

#ifndef GRADGATE_TESTS_SHIM_CAPI_LEDGER_JOB_H_
#define GRADGATE_TESTS_SHIM_CAPI_LEDGER_JOB_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shim/capi/ledger.h"
#include "tests/shim/reduce/memory_store.h"

namespace gradgate {

inline constexpr int64_t kTestSecond = 1'000'000'000;
inline constexpr uint32_t kDpRole = RoleBit(GroupRole::kDp);
inline constexpr uint32_t kHsdpRoles = RoleBit(GroupRole::kShard) | RoleBit(GroupRole::kReplicate);

class LedgerJob {
 public:
  using Configure = std::function<void(uint32_t rank, LedgerOptions& options)>;
  using Body = std::function<void(uint32_t rank, Ledger& ledger)>;
  using Words = std::array<int64_t, Ballot::kWords>;

  explicit LedgerJob(uint32_t world_size)
      : world_size_(world_size), sync_(world_size), shared_(world_size), created_(world_size), log_(world_size) {}

  LedgerOptions Defaults(uint32_t rank) {
    LedgerOptions options;
    options.accumulate = 4;
    options.rank = rank;
    options.world_size = world_size_;
    options.local_rank = rank;
    options.job_name = "test";
    options.store_prefix = "t/";
    options.store = &store_;
    options.roles = kDpRole;
    options.deadline_ns = 30 * kTestSecond;
    options.handshake_deadline_ns = 30 * kTestSecond;
    options.log = [](void* user, uint32_t, const char* reason, const char* message) {
      static_cast<std::vector<std::string>*>(user)->push_back(std::string(reason) + ": " + message);
    };
    options.log_user = &log_[rank];
    return options;
  }

  void Run(const Configure& configure, const Body& body) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < world_size_; ++rank) {
      threads.emplace_back([this, rank, &configure, &body] {
        LedgerOptions options = Defaults(rank);
        if (configure) configure(rank, options);
        std::unique_ptr<Ledger> ledger;
        created_[rank] = Ledger::Create(std::move(options), &ledger);
        if (created_[rank].ok()) body(rank, *ledger);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // The MAX all-reduce that the owner carries out; every rank calls it.
  Words Reduce(uint32_t rank, const Words& words) {
    sync_.arrive_and_wait();
    shared_[rank] = words;
    sync_.arrive_and_wait();
    Words reduced = shared_[0];
    for (const Words& other : shared_) {
      for (size_t i = 0; i < reduced.size(); ++i) reduced[i] = std::max(reduced[i], other[i]);
    }
    sync_.arrive_and_wait();
    return reduced;
  }

  // One ballot: what this rank says, and what all said.
  BallotResult Vote(uint32_t rank, Ledger& ledger, const Ballot& said) {
    Words words;
    EXPECT_TRUE(ledger.Vote(said, &words).ok());
    return BallotResult(Reduce(rank, words));
  }

  const Status& created(uint32_t rank) const { return created_[rank]; }
  const std::vector<std::string>& log(uint32_t rank) const { return log_[rank]; }

 private:
  MemoryStore store_;
  const uint32_t world_size_;
  std::barrier<> sync_;
  std::vector<Words> shared_;
  std::vector<Status> created_;
  std::vector<std::vector<std::string>> log_;
};

// What a framework issues: `count` gradient collectives of a role, done at once.
inline void Issue(Ledger& ledger, GroupRole role, uint32_t count = 2) {
  const CollectiveOp op = role == GroupRole::kShard ? CollectiveOp::kReduceScatter : CollectiveOp::kAllReduce;
  for (uint32_t i = 0; i < count; ++i) {
    const int64_t at_ns = ledger.counts().Issued(role, op, TrafficClass::kGradient, 100, 1);
    ledger.counts().Done(role, op, TrafficClass::kGradient, at_ns, Outcome::kOk);
  }
}

// One micro-step in which the roles of `roles` are reduced.
inline bool MicroStep(Ledger& ledger, std::vector<GroupRole> roles = {}, Last last = Last::kByCount) {
  bool closes = false;
  EXPECT_TRUE(ledger.BeginMicroStep(last, &closes).ok());
  for (const GroupRole role : roles) Issue(ledger, role);
  EXPECT_TRUE(ledger.EndMicroStep().ok());
  return closes;
}

inline LedgerWindowEnd Stepped(uint32_t micro_steps) {
  return {.stepped = true, .min_micro_steps = micro_steps, .max_micro_steps = micro_steps};
}

inline ClosedWindow CloseWindow(Ledger& ledger, const LedgerWindowEnd& end) {
  ClosedWindow report;
  EXPECT_TRUE(ledger.CloseWindow(end, &report).ok());
  return report;
}

struct RoleCounts {
  uint64_t intended, issued, suppressed, late, extra;
  bool operator==(const RoleCounts&) const = default;
};

inline void PrintTo(const RoleCounts& c, std::ostream* os) {
  *os << "intended " << c.intended << ", issued " << c.issued << ", suppressed " << c.suppressed << ", late " << c.late
      << ", extra " << c.extra;
}

inline uint64_t Count(const page::U64& counter) { return counter.load(std::memory_order_relaxed); }

inline RoleCounts Role(const Ledger& ledger, GroupRole role) {
  const page::RoleTotals& totals = ledger.page().roles[static_cast<uint32_t>(role)];
  return {Count(totals.intended_count), Count(totals.issued_count), Count(totals.suppressed_count), Count(totals.late_count),
          Count(totals.declared_extra_count)};
}

// The record of the window that was closed last.
inline page::WindowRecord LastRecord(const Ledger& ledger) {
  const page::StatsPage& page = ledger.page();
  const uint64_t index = Count(page.ring.window_next) - 1;
  struct Packed {
    uint64_t words[page::kWindowWords];
  } packed;
  for (uint32_t i = 0; i < page::kWindowWords; ++i) packed.words[i] = Count(page.windows[index % page::kWindowSlots].words[i]);
  return std::bit_cast<page::WindowRecord>(packed);
}

}  // namespace gradgate

#endif  // GRADGATE_TESTS_SHIM_CAPI_LEDGER_JOB_H_
