// Numbers, durations and times as fields of messages have them. Pure functions.

#ifndef GRADGATE_DAEMON_RPC_FIELDS_H_
#define GRADGATE_DAEMON_RPC_FIELDS_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace gradgate {

// Pages are untrusted: what is too large for the field is its largest.
inline int64_t Signed(uint64_t value) { return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)); }
inline int32_t Signed32(uint64_t value) { return static_cast<int32_t>(std::min<uint64_t>(value, INT32_MAX)); }

inline void Set(uint64_t ns, google::protobuf::Duration* out) {
  out->set_seconds(Signed(ns / 1'000'000'000));
  out->set_nanos(static_cast<int32_t>(ns % 1'000'000'000));
}

// Negative is zero: wall clocks are set back.
inline void Set(absl::Duration duration, google::protobuf::Duration* out) {
  Set(static_cast<uint64_t>(std::max<int64_t>(absl::ToInt64Nanoseconds(duration), 0)), out);
}

// Left unset outside of what a Timestamp may hold.
inline void Set(absl::Time time, google::protobuf::Timestamp* out) {
  const absl::Time last = absl::FromUnixSeconds(253402300799);  // year 9999
  const absl::Time inside = std::clamp(time, absl::UnixEpoch(), last);
  const int64_t ns = absl::ToUnixNanos(inside);
  const int64_t seconds = absl::ToUnixSeconds(inside);
  out->set_seconds(seconds);
  out->set_nanos(ns == INT64_MAX ? 0 : static_cast<int32_t>(ns - seconds * 1'000'000'000));
}

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_FIELDS_H_
