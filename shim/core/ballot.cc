#include "shim/core/ballot.h"

#include <map>

namespace gradgate {
namespace {

Ballot FromFields(std::span<const int64_t, Ballot::kFields> f) {
  return {f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8], f[9], f[10], f[11], f[12], f[13], f[14], f[15]};
}

// Defined for every value: what comes from another rank may be anything.
int64_t Negative(int64_t value) { return static_cast<int64_t>(-static_cast<uint64_t>(value)); }

}  // namespace

std::string_view Ballot::FieldName(uint32_t field) {
  constexpr std::string_view kNames[kFields] = {"window",   "round",   "mode",    "micro_steps", "contributes", "closes",
                                                "divisor",  "skipped", "discard", "out_of_data", "sums",        "parity",
                                                "headroom", "staged",  "policy",  "policy_hash"};
  return field < kFields ? kNames[field] : "unknown";
}

std::array<int64_t, Ballot::kWords> Ballot::Encode() const {
  std::array<int64_t, kWords> words;
  const auto fields = Fields();
  for (uint32_t i = 0; i < kFields; ++i) {
    words[i] = fields[i];
    words[kFields + i] = Negative(fields[i]);
  }
  return words;
}

BallotResult::BallotResult(std::span<const int64_t, Ballot::kWords> reduced) {
  std::array<int64_t, Ballot::kFields> low;
  for (uint32_t i = 0; i < Ballot::kFields; ++i) low[i] = Negative(reduced[Ballot::kFields + i]);
  min_ = FromFields(low);
  max_ = FromFields(reduced.first<Ballot::kFields>());
}

std::string DescribeDifferences(std::span<const int64_t> all, uint32_t world_size) {
  std::string text;
  for (uint32_t field = 0; field < Ballot::kFields; ++field) {
    if (field == Ballot::kHeadroomField || field >= Ballot::kPolicyField) continue;
    std::map<int64_t, std::vector<uint32_t>> ranks_by_value;
    for (uint32_t rank = 0; rank < world_size; ++rank) ranks_by_value[all[rank * Ballot::kFields + field]].push_back(rank);
    if (ranks_by_value.size() < 2) continue;
    if (!text.empty()) text += "; ";
    text += std::string(Ballot::FieldName(field)) + ":";
    const char* separator = " ";
    for (auto it = ranks_by_value.rbegin(); it != ranks_by_value.rend(); ++it) {
      text += separator + std::string("ranks ") + FormatRanks(it->second) + " have " + std::to_string(it->first);
      separator = ", ";
    }
  }
  return text;
}

std::string FormatRanks(const std::vector<uint32_t>& ranks) {
  constexpr size_t kShown = 16;
  std::string text = "[";
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text + "]";
}

}  // namespace gradgate
