#include "shim/core/window_timer.h"

#include <algorithm>

namespace gradgate {
namespace {

uint64_t Between(int64_t from_ns, int64_t to_ns) { return to_ns > from_ns ? static_cast<uint64_t>(to_ns - from_ns) : 0; }

}  // namespace

void WindowTimer::MicroStepBegun(int64_t now_ns) {
  if (begin_ns_ == 0) begin_ns_ = now_ns;
  micro_step_begin_ns_ = now_ns;
}

uint64_t WindowTimer::MicroStepEnded(int64_t now_ns, bool suppressed) {
  const uint64_t duration_ns = Between(micro_step_begin_ns_, now_ns);
  if (suppressed) {
    samples_[suppressed_++ % kSamples] = duration_ns;
  } else {
    boundary_micro_step_ns_ = duration_ns;
  }
  return duration_ns;
}

void WindowTimer::Reduced(int64_t last_issue_ns, int64_t complete_ns, bool late) {
  tail_ns_ += Between(last_issue_ns, complete_ns);
  late_ |= late;
}

void WindowTimer::Waited(int64_t from_ns, int64_t to_ns) { wait_ns_ += Between(from_ns, to_ns); }

uint64_t WindowTimer::suppressed_median_ns() const {
  const uint32_t count = std::min(suppressed_, kSamples);
  if (count == 0) return 0;
  auto sorted = samples_;
  std::nth_element(sorted.begin(), sorted.begin() + count / 2, sorted.begin() + count);
  return sorted[count / 2];
}

uint64_t WindowTimer::exposed_ns() const {
  if (late_) return wait_ns_;
  if (suppressed_ == 0) return tail_ns_;
  const uint64_t median_ns = suppressed_median_ns();
  return boundary_ns() > median_ns ? boundary_ns() - median_ns : 0;
}

}  // namespace gradgate
