// How single values are written in tables. Pure functions; any thread.

#ifndef GRADGATE_CLIENT_CLI_FORMAT_H_
#define GRADGATE_CLIENT_CLI_FORMAT_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::cli {

// Text that a trainer gave, made safe for a terminal: control characters as \xNN.
std::string Printable(absl::string_view untrusted);

// Three digits and a decimal unit: "999 B", "1.29 MB", "12.9 GB".
std::string HumanBytes(int64_t bytes);

// Two units at most: "0.4s", "12s", "1m23s", "2h05m", "3d04h". Negative is 0: clocks differ.
std::string HumanDuration(absl::Duration duration);

// "12.346": seconds, or milliseconds, with three decimals.
std::string Seconds(const google::protobuf::Duration& duration);
std::string Milliseconds(const google::protobuf::Duration& duration);

absl::Duration ToDuration(const google::protobuf::Duration& duration);
absl::Time ToTime(const google::protobuf::Timestamp& time);

// "2026-01-31 23:59:59Z".
std::string UtcTime(const google::protobuf::Timestamp& time);

// "1.00"; "-" where the divisor is 0.
std::string Ratio(int64_t dividend, int64_t divisor);

// The word of proto/shm/types.h, e.g. "all_reduce"; for states their name in small letters. A value that this build does not
// know, as its number.
std::string Word(v1::State state);
std::string Word(v1::SyncMode mode);
std::string Word(v1::Enforcement enforcement);
std::string Word(v1::GroupRole role);
std::string Word(v1::CollectiveOp op);
std::string Word(v1::WindowKind kind);

// "rank 3", "ranks 0-2,7".
std::string Ranks(const std::set<int>& ranks);

// Ranks with equal counts together, the largest first: "2 on ranks 0-2, 1 on rank 7". Zeros are left out; empty if all are.
std::string CountsByRank(const std::map<int, int64_t>& counts);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_FORMAT_H_
