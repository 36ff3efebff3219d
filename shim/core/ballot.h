// The ballot: the few numbers of which minimum and maximum over all ranks are taken inside the job, once per reduction, before
// the first gradient collective. Pure encoding and evaluation; the collective is the caller's.
//
// On the wire: 2F int64, element i is field i and element F + i its negative, reduced by MAX; so one collective gives maximum
// and minimum. All ranks read the same result, so every verdict below is shared by all ranks.
//
// A window is one or more rounds. In each round a rank either contributes gradients or only takes part (a late rank without
// data, or one whose window is closed while others go on). The window is over after the round in which all ranks said `closes`.
// If no rank contributes, no gradient collective follows.

#ifndef GRADGATE_SHIM_CORE_BALLOT_H_
#define GRADGATE_SHIM_CORE_BALLOT_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradgate {

struct Ballot {
  int64_t window = 0;
  int64_t round = 0;        // in the window, from 0
  int64_t mode = 0;         // SyncMode
  int64_t micro_steps = 0;  // of the window so far, the one in progress included
  int64_t contributes = 0;  // 1: this rank's gradients are part of this round
  int64_t closes = 0;       // 1: this rank's window ends with this round
  int64_t divisor = 0;      // of a flush; 0: a step, or not known yet
  // Ledgers alone; zero in a session's.
  int64_t skipped = 0;      // micro-steps of this window to which this rank contributed nothing
  int64_t discard = 0;      // 1: no rank shall step this window
  int64_t out_of_data = 0;  // 1: this rank has no further micro-batch
  int64_t sums = 0;         // 1: this rank wants the sums that follow
  int64_t parity = 0;       // hash of what ranks should hold alike; 0: not sampled
  int64_t headroom = 0;     // bytes of memory left
  int64_t staged = 0;       // version of a change that waits for the agreement of all
  // Of both; see policy_stage.h.
  int64_t policy = 0;       // version of the policy that this rank would take up
  int64_t policy_hash = 0;  // of its content

  static constexpr uint32_t kFields = 16;
  static constexpr uint32_t kHeadroomField = 12;
  static constexpr uint32_t kPolicyField = 14;
  static constexpr uint32_t kWords = 2 * kFields;

  std::array<int64_t, kFields> Fields() const {
    return {window,  round,       mode, micro_steps, contributes, closes, divisor, skipped,
            discard, out_of_data, sums, parity,      headroom,    staged, policy,  policy_hash};
  }
  static std::string_view FieldName(uint32_t field);

  std::array<int64_t, kWords> Encode() const;
};

// What a reduced ballot says.
class BallotResult {
 public:
  explicit BallotResult(std::span<const int64_t, Ballot::kWords> reduced);

  // Some rank contributes: gradient collectives follow.
  bool any_contributes() const { return max_.contributes > 0; }
  // Every rank closes its window with this round.
  bool all_close() const { return min_.closes > 0; }
  // Ranks are not in the same round of the same window in the same mode: their collectives do not belong together.
  bool incompatible() const { return min_.window != max_.window || min_.round != max_.round || min_.mode != max_.mode; }
  // Ranks brought different numbers of micro-steps. (One that closes early and one that finds out late differ in `closes`
  // alone: no fault.)
  bool unequal() const { return min_.micro_steps != max_.micro_steps; }
  // Ranks differ in something that a person should hear of, where `equal` windows are declared or not.
  bool differs(bool equal) const {
    return incompatible() || (equal && unequal()) || min_.skipped != max_.skipped || min_.discard != max_.discard ||
           min_.parity != max_.parity;
  }
  const Ballot& min() const { return min_; }
  const Ballot& max() const { return max_; }

 private:
  Ballot min_;
  Ballot max_;
};

// Says who differs: `all` holds every rank's fields, rank after rank. "micro_steps: ranks [0, 1, 3] have 4, ranks [2] have 3";
// one clause for each field that differs, but headroom and policies, which may at any time; empty if none does. At most 16
// ranks are listed in a group.
std::string DescribeDifferences(std::span<const int64_t> all, uint32_t world_size);

// "[0, 1, 3]", cut after 16 with the number of the rest.
std::string FormatRanks(const std::vector<uint32_t>& ranks);

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CORE_BALLOT_H_
