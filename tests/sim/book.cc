#include "tests/sim/book.h"

#include <algorithm>

namespace gradgate::sim {
namespace {

std::string Named(const SyncPolicy& policy) {
  return "version " + std::to_string(policy.version) + " (" + std::to_string(policy.content_hash % 9973) + ")";
}

std::string Where(uint32_t rank, uint64_t window) {
  return "rank " + std::to_string(rank) + ", window " + std::to_string(window);
}

}  // namespace

uint64_t InverseOf(uint64_t number) {
  uint64_t result = 1;
  for (uint64_t power = kPrime - 2; power > 0; power >>= 1) {
    if (power & 1) result = result * number % kPrime;
    number = number * number % kPrime;
  }
  return result;
}

bool Same(const SyncPolicy& a, const SyncPolicy& b) {
  return a.version == b.version && a.content_hash == b.content_hash && a.bucket_bytes == b.bucket_bytes &&
         a.sync_mode == b.sync_mode && a.wire_type == b.wire_type && a.reshard == b.reshard && a.enforcement == b.enforcement;
}

std::span<const CoverageRow> CoverageRows() {
  static constexpr CoverageRow kRows[] = {
      {"windows closed", &Coverage::windows},
      {"  that outran a prediction", &Coverage::outruns},
      {"ballots read", &Coverage::ballots},
      {"  that told different versions", &Coverage::split_votes},
      {"reductions or rounds that were late", &Coverage::late_reductions},
      {"optimizer steps", &Coverage::steps},
      {"policies offered", &Coverage::offers},
      {"  not above what is known", &Coverage::stale_offers},
      {"  rejected by the rank", &Coverage::rejections},
      {"  accepted", &Coverage::accepted},
      {"  accepted inside a window", &Coverage::accepted_inside},
      {"  same version, other content", &Coverage::other_contents},
      {"garbage frames", &Coverage::garbage},
      {"adoptions, by rank", &Coverage::adoptions},
      {"steps refused by one rank alone", &Coverage::refused_alone},
      {"ranks that died", &Coverage::deaths},
      {"ranks that stopped for a while", &Coverage::stops},
      {"results that reached some ranks only", &Coverage::lost_results},
      {"jobs that ended well", &Coverage::jobs_done},
      {"jobs that ended with an error", &Coverage::jobs_failed},
  };
  return kRows;
}

void Coverage::Add(const Coverage& other) {
  for (const CoverageRow& row : CoverageRows()) this->*row.count += other.*row.count;
}

Book::Book(const Scenario& scenario) : s_(scenario) { windows_.reserve(scenario.iterations + 2); }

void Book::Fail(const char* invariant, std::string text) {
  if (!broken()) violation_ = {invariant, std::move(text)};
}

Book::Window& Book::At(uint64_t window) {
  if (window >= windows_.size()) windows_.resize(window + 1);
  return windows_[window];
}

void Book::WindowBegun(uint32_t rank, uint64_t window, const PolicyStage& stage, const Settings& settings) {
  const SyncPolicy& policy = stage.in_force();
  Window& w = At(window);
  if (!w.begun) {
    w.begun = true;
    w.by = rank;
    w.policy = policy;
    w.settings = settings;
  } else if (!Same(w.policy, policy) || !(w.settings == settings)) {
    Fail("one-policy", Where(rank, window) + ": " + Named(policy) + " is in force, and " + Named(w.policy) + " on rank " +
                           std::to_string(w.by));
  }
  CheckAdopted(rank, window, stage);
}

void Book::Adopted(uint32_t rank, uint64_t window, uint64_t before, const SyncPolicy& policy) {
  ++coverage.adoptions;
  if (policy.version > before) return;
  Fail("version-not-above",
       Where(rank, window) + ": " + Named(policy) + " comes into force after version " + std::to_string(before));
}

// What was accepted before the last window began has been voted on by all, in a ballot that this rank has read.
void Book::CheckAdopted(uint32_t rank, uint64_t window, const PolicyStage& stage) {
  if (window < 2 || s_.rogue != Rogue::kNone) return;
  uint64_t newest = 0;
  for (const Acceptance& a : acceptances_) {
    if (a.window + 1 <= window) newest = std::max(newest, a.version);
  }
  if (newest <= stage.in_force().version) return;
  uint64_t content = 0;
  uint32_t ranks = 0;
  for (const Acceptance& a : acceptances_) {
    if (a.version != newest || a.window + 2 > window) continue;
    if (ranks++ == 0) content = a.content_hash;
    if (a.content_hash != content) return;
  }
  if (ranks == s_.ranks) {
    Fail("not-adopted", Where(rank, window) + ": all ranks accepted version " + std::to_string(newest) +
                            " two windows ago, and " + Named(stage.in_force()) + " is still in force");
  }
}

void Book::Inside(uint32_t rank, uint64_t window, const PolicyStage& stage, const Settings& settings) {
  const Window& w = At(window);
  if (Same(w.policy, stage.in_force()) && w.settings == settings) return;
  if (s_.rogue != Rogue::kNone && rank == s_.rogue_rank) return;
  Fail("effect-inside-window",
       Where(rank, window) + ": " + Named(stage.in_force()) + " is in force, the window began under " + Named(w.policy));
}

void Book::Faulted(int64_t now) {
  if (faulted_at_ < 0) faulted_at_ = now;
}

// Each rank goes on to where it needs the others, after a pause perhaps, and then waits once.
void Book::Ended(uint32_t rank, int64_t now) {
  if (faulted_at_ < 0 || now <= faulted_at_ + s_.horizon() + 2 * kDeadline) return;
  Fail("stuck", "rank " + std::to_string(rank) + " ends " + std::to_string(now - faulted_at_) +
                    " after the fault, its deadline is " + std::to_string(kDeadline));
}

void Book::Accepted(uint32_t rank, uint64_t window, const SyncPolicy& policy) {
  ++coverage.accepted;
  for (const Acceptance& a : acceptances_) {
    coverage.other_contents += a.version == policy.version && a.content_hash != policy.content_hash;
  }
  acceptances_.push_back({rank, window, policy.version, policy.content_hash});
}

void Book::Contributed(uint64_t window, const Gradient& gradient) {
  Gradient& sum = At(window).sum;
  for (uint32_t i = 0; i < kTensors; ++i) sum[i] = (sum[i] + gradient[i]) % kPrime;
}

void Book::Stepping(uint32_t rank, uint64_t window, const Gradient& gradient) {
  ++coverage.steps;
  const uint64_t inverse = InverseOf(s_.ranks);
  for (uint32_t i = 0; i < kTensors; ++i) {
    if (gradient[i] == At(window).sum[i] * inverse % kPrime) continue;
    Fail("unreduced-step",
         Where(rank, window) + ": the optimizer steps on a gradient that is not the mean of what all ranks brought");
  }
}

void Book::Reduced(uint32_t rank, uint64_t window, uint32_t reductions, uint32_t asked) {
  ++coverage.windows;
  if (reductions == asked) return;
  Fail("reductions", Where(rank, window) + ": reduced " + std::to_string(reductions) + " times, the policy in force asks for " +
                         std::to_string(asked));
}

}  // namespace gradgate::sim
