// Measures several things in turn, A B C A B C …, so that a machine whose speed drifts slows all alike.
//
// Each round measures every series twice, once for `samples` and once for `again`: what differs between these two is the
// machine's noise. A measurement that came to nothing is NaN and left out. One line of JSON per series goes to stdout; run.py
// makes medians, intervals and verdicts of them.

#ifndef GRADGATE_BENCH_INTERLEAVE_H_
#define GRADGATE_BENCH_INTERLEAVE_H_

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace gradgate::bench {

struct Series {
  std::string name;
  std::string unit;
  std::function<double()> measure;
  std::vector<double> samples = {};
  std::vector<double> again = {};
};

inline void PrintValues(const char* key, const std::vector<double>& values) {
  std::printf(", \"%s\": [", key);
  for (size_t i = 0; i < values.size(); ++i) std::printf("%s%.9g", i > 0 ? ", " : "", values[i]);
  std::printf("]");
}

inline void Print(const Series& series) {
  std::printf("{\"name\": \"%s\", \"unit\": \"%s\"", series.name.c_str(), series.unit.c_str());
  PrintValues("samples", series.samples);
  PrintValues("again", series.again);
  std::printf("}\n");
  std::fflush(stdout);
}

// One round that is not counted, then `rounds`.
inline void RunInterleaved(std::vector<Series>& all, uint32_t rounds) {
  for (uint32_t round = 0; round <= rounds; ++round) {
    for (const bool second : {false, true}) {
      for (Series& series : all) {
        const double value = series.measure();
        if (round > 0 && !std::isnan(value)) (second ? series.again : series.samples).push_back(value);
      }
    }
  }
}

// The compiler must believe that `value` is looked at.
template <typename T>
void Keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

}  // namespace gradgate::bench

#endif  // GRADGATE_BENCH_INTERLEAVE_H_
