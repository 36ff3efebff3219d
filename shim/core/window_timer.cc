#include "shim/core/window_timer.h"

#include <algorithm>

namespace gradgate {

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
