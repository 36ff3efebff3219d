// How verdicts are worded: short, with numbers, for a person who was just woken. Pure functions.

#ifndef GRADGATE_DAEMON_DOCTOR_WORDS_H_
#define GRADGATE_DAEMON_DOCTOR_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::doctor {

using RankSet = std::set<int32_t>;

// "rank 3", "ranks 0-2, 7"; of many the first runs only.
std::string RankList(const RankSet& ranks);

// "1 window", "3 windows".
std::string Count(int64_t count, const char* noun);

// "window 7", "windows 3 to 9".
std::string WindowSpan(int64_t first, int64_t last);

// "850 us", "12.3 ms", "1.24 s", "3 min 05 s", "2 h 10 min".
std::string Span(absl::Duration duration);

// "999 B", "1.29 MB".
std::string Bytes(double bytes);

// "4", "1.25".
std::string Number(double value);

// "all_reduce", "dp", "window", as in tables and labels.
std::string Word(v1::CollectiveOp op);
std::string Word(v1::GroupRole role);
std::string Word(v1::SyncMode mode);
std::string Word(v1::Enforcement enforcement);

// Text of other processes without control characters, cut to what fits a line, or to what is asked for.
std::string Shown(const std::string& untrusted, size_t max_bytes = 80);

}  // namespace gradgate::doctor

#endif  // GRADGATE_DAEMON_DOCTOR_WORDS_H_
