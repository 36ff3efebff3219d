// What must hold of every answer of the daemon, whatever pages and callers say.

#ifndef GRADGATE_TESTS_FUZZ_ANSWERS_H_
#define GRADGATE_TESTS_FUZZ_ANSWERS_H_

#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "prometheus/metric_family.h"

namespace gradgate::fuzz {

// Numbers are not negative, text is printable, enumerations have a name, times and durations are within their types' range.
// `all`: every message in it, down to the last; else the outermost and the first of each list.
void CheckMessage(const google::protobuf::Message& message, bool all);

// Nothing in it moves a terminal's cursor or changes its colours: lines of text.
void CheckShown(const std::string& text);

// Values are finite and not negative, a series appears once, histograms add up.
void CheckFamilies(const std::vector<prometheus::MetricFamily>& families);

}  // namespace gradgate::fuzz

#endif  // GRADGATE_TESTS_FUZZ_ANSWERS_H_
