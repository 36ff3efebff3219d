#include "tests/sim/small_scope.h"

#include <algorithm>
#include <array>

#include "shim/core/ballot.h"
#include "shim/core/policy_stage.h"
#include "tests/sim/book.h"

namespace gradgate::sim {
namespace {

constexpr uint32_t kMostRanks = 3;
constexpr uint32_t kMostPolicies = 3;

enum class Oddity : uint8_t { kNone, kRejects, kOtherContent };

// Where each policy reaches each rank: a point, of which there are PointCount, or one beyond them: never.
struct Schedule {
  std::array<std::array<uint32_t, kMostPolicies>, kMostRanks> points{};
  std::array<Oddity, kMostPolicies> of_rank_0{};
};

// Points of a window: before each vote, after it, and before the window closes. votes_again has one more after each vote.
uint32_t PointsOfRound(const SmallScope& scope) { return scope.votes_again ? 3 : 2; }
uint32_t PointCount(const SmallScope& scope) { return scope.windows * (scope.rounds * PointsOfRound(scope) + 1); }

class Replay {
 public:
  Replay(const SmallScope& scope, const Schedule& schedule, SmallScopeResult* result, bool telling)
      : scope_(scope), schedule_(schedule), result_(result), telling_(telling) {}

  void Run() {
    for (uint32_t window = 0; window < scope_.windows && result_->violation.empty(); ++window) {
      for (uint32_t round = 0; round < scope_.rounds; ++round) Round(window);
      Arrive(window);
      for (uint32_t rank = 0; rank < scope_.ranks; ++rank) Close(rank, window);
      Compare(window + 1);
    }
  }

 private:
  void Say(const std::string& line) {
    if (telling_) result_->schedule.push_back(line);
  }
  void Break(const std::string& what) {
    if (result_->violation.empty()) result_->violation = what;
  }

  // What reaches ranks at the next point.
  void Arrive(uint32_t window) {
    for (uint32_t rank = 0; rank < scope_.ranks; ++rank) {
      for (uint32_t i = 0; i < scope_.policies; ++i) {
        if (schedule_.points[rank][i] == point_) Offer(rank, i, window);
      }
    }
    ++point_;
  }

  void Offer(uint32_t rank, uint32_t index, uint32_t window) {
    const Oddity oddity = rank == 0 ? schedule_.of_rank_0[index] : Oddity::kNone;
    const SyncPolicy policy{
        .version = index + 1,
        .content_hash = 100 + (scope_.same_contents ? 0 : index) + (oddity == Oddity::kOtherContent ? 50 : 0)};
    const bool taken = stages_[rank].Offered(policy);
    if (taken && oddity == Oddity::kRejects) stages_[rank].Reject(PolicyRejection::kFixed);
    if (taken && oddity != Oddity::kRejects) {
      stages_[rank].Accept();
      accepted_[rank].push_back({window, policy.version, policy.content_hash});
    }
    if (telling_) {
      Say("window " + std::to_string(window) + ": rank " + std::to_string(rank) + " is offered version " +
          std::to_string(policy.version) + ", content " + std::to_string(policy.content_hash) +
          (!taken                       ? ": ignored"
           : oddity == Oddity::kRejects ? ": rejected"
                                        : ": accepted"));
    }
  }

  void Round(uint32_t window) {
    Arrive(window);
    if (scope_.ranks == 1) return Arrive(window);  // a session alone has no ballots
    std::array<int64_t, Ballot::kWords> reduced;
    for (uint32_t rank = 0; rank < scope_.ranks; ++rank) {
      const PolicyStage::Ticket ticket = stages_[rank].Vote();
      if (telling_)
        Say("window " + std::to_string(window) + ": rank " + std::to_string(rank) + " votes for version " +
            std::to_string(ticket.version));
      const auto words = Ballot{.policy = ticket.version, .policy_hash = ticket.content_hash}.Encode();
      for (uint32_t i = 0; i < Ballot::kWords; ++i) reduced[i] = rank == 0 ? words[i] : std::max(reduced[i], words[i]);
    }
    Arrive(window);
    if (scope_.votes_again) {
      for (uint32_t rank = 0; rank < scope_.ranks; ++rank) (void)stages_[rank].Vote();
      Arrive(window);
    }
    const BallotResult result{std::span<const int64_t, Ballot::kWords>(reduced)};
    for (uint32_t rank = 0; rank < scope_.ranks; ++rank) {
      const SyncPolicy before = stages_[rank].in_force();
      stages_[rank].Read({result.min().policy, result.min().policy_hash}, {result.max().policy, result.max().policy_hash});
      if (!Same(before, stages_[rank].in_force())) Break("effect-inside-window");
    }
    if (telling_) {
      Say("window " + std::to_string(window) + ": all read versions " + std::to_string(result.min().policy) + " to " +
          std::to_string(result.max().policy));
    }
  }

  void Close(uint32_t rank, uint32_t window) {
    const uint64_t before = stages_[rank].in_force().version;
    const bool adopted = stages_[rank].WindowClosed(window + 1, scope_.ranks == 1);
    result_->adoptions += adopted;
    if (adopted) {
      Say("window " + std::to_string(window + 1) + ": rank " + std::to_string(rank) + " is under version " +
          std::to_string(stages_[rank].in_force().version));
    }
    if (adopted && stages_[rank].in_force().version <= before) Break("version-not-above");
  }

  void Compare(uint32_t window) {
    for (uint32_t rank = 1; rank < scope_.ranks; ++rank) {
      if (!Same(stages_[0].in_force(), stages_[rank].in_force())) Break("one-policy");
    }
    if (window < 2) return;
    uint64_t newest = 0;
    for (const auto& of_rank : accepted_) {
      for (const Acceptance& a : of_rank) newest = a.window + 1 <= window ? std::max(newest, a.version) : newest;
    }
    if (newest <= stages_[0].in_force().version) return;
    uint64_t content = 0;
    for (uint32_t rank = 0; rank < scope_.ranks; ++rank) {
      const auto found = std::find_if(accepted_[rank].begin(), accepted_[rank].end(), [&](const Acceptance& a) {
        return a.version == newest && a.window + 2 <= window && (rank == 0 || a.content_hash == content);
      });
      if (found == accepted_[rank].end()) return;
      content = found->content_hash;
    }
    Break("not-adopted");
  }

  struct Acceptance {
    uint32_t window;
    uint64_t version;
    uint64_t content_hash;
  };

  const SmallScope& scope_;
  const Schedule& schedule_;
  SmallScopeResult* result_;
  const bool telling_;
  uint32_t point_ = 0;
  std::array<PolicyStage, kMostRanks> stages_;
  std::array<std::vector<Acceptance>, kMostRanks> accepted_;
};

// All assignments of points to (rank, policy), one after the other; false: that was the last.
bool Next(const SmallScope& scope, Schedule* schedule) {
  const uint32_t never = PointCount(scope);
  for (uint32_t rank = 0; rank < scope.ranks; ++rank) {
    for (uint32_t i = 0; i < scope.policies; ++i) {
      if (schedule->points[rank][i]++ < never) return true;
      schedule->points[rank][i] = 0;
    }
  }
  return false;
}

bool NextOddity(const SmallScope& scope, Schedule* schedule) {
  if (!scope.odd_rank) return false;
  for (uint32_t i = 0; i < scope.policies; ++i) {
    if (schedule->of_rank_0[i] != Oddity::kOtherContent) {
      schedule->of_rank_0[i] = static_cast<Oddity>(static_cast<uint8_t>(schedule->of_rank_0[i]) + 1);
      return true;
    }
    schedule->of_rank_0[i] = Oddity::kNone;
  }
  return false;
}

}  // namespace

SmallScopeResult Explore(const SmallScope& scope) {
  SmallScopeResult result;
  Schedule schedule;
  do {
    do {
      ++result.schedules;
      Replay(scope, schedule, &result, false).Run();
      if (result.violation.empty()) continue;
      result.violation.clear();
      Replay(scope, schedule, &result, true).Run();
      return result;
    } while (Next(scope, &schedule));
  } while (NextOddity(scope, &schedule));
  return result;
}

}  // namespace gradgate::sim
