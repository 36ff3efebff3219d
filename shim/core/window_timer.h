// Times of one window, from instants that the caller passes in (ns, one clock): how long micro-steps took, and how much of the
// boundary was exposed synchronisation. Pure; nothing allocates.
//
// Exposed time: duration of the boundary micro-step and of the wait at the step, less the median of the suppressed micro-steps.
// In a window without suppressed micro-steps: completion of each reduction less the issue of its last bucket, summed. With more
// than kSamples suppressed micro-steps the median is that of the last kSamples.

#ifndef GRADGATE_SHIM_CORE_WINDOW_TIMER_H_
#define GRADGATE_SHIM_CORE_WINDOW_TIMER_H_

#include <array>
#include <cstdint>

namespace gradgate {

class WindowTimer {
 public:
  static constexpr uint32_t kSamples = 64;

  void MicroStepBegun(int64_t now_ns) {
    if (begin_ns_ == 0) begin_ns_ = now_ns;
    micro_step_begin_ns_ = now_ns;
  }
  // Returns the duration.
  uint64_t MicroStepEnded(int64_t now_ns, bool suppressed) {
    const uint64_t duration_ns = Between(micro_step_begin_ns_, now_ns);
    if (suppressed) {
      samples_[suppressed_++ % kSamples] = duration_ns;
    } else {
      boundary_micro_step_ns_ = duration_ns;
    }
    return duration_ns;
  }
  // A reduction of this window: when its last bucket was issued, when it was complete.
  void Reduced(int64_t last_issue_ns, int64_t complete_ns, bool late);
  // The loop was blocked for a reduction.
  void Waited(int64_t from_ns, int64_t to_ns);

  int64_t begin_ns() const { return begin_ns_; }  // 0: no micro-step yet
  uint64_t boundary_ns() const { return boundary_micro_step_ns_ + wait_ns_; }
  uint64_t wait_ns() const { return wait_ns_; }
  uint64_t suppressed_median_ns() const;
  uint64_t exposed_ns() const;

 private:
  static uint64_t Between(int64_t from_ns, int64_t to_ns) {
    return to_ns > from_ns ? static_cast<uint64_t>(to_ns - from_ns) : 0;
  }

  int64_t begin_ns_ = 0;
  int64_t micro_step_begin_ns_ = 0;
  uint64_t boundary_micro_step_ns_ = 0;  // 0 when the window was reduced late
  uint64_t wait_ns_ = 0;
  uint64_t tail_ns_ = 0;
  bool late_ = false;
  uint32_t suppressed_ = 0;
  std::array<uint64_t, kSamples> samples_{};
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CORE_WINDOW_TIMER_H_
