// What a window was, told to the owner of a session or a ledger at its end: see gg_window.

#ifndef GRADGATE_SHIM_CAPI_CLOSED_WINDOW_H_
#define GRADGATE_SHIM_CAPI_CLOSED_WINDOW_H_

#include <cstdint>

#include "proto/shm/types.h"

namespace gradgate {

struct ClosedWindow {
  WindowKind kind = WindowKind::kUnspecified;
  uint64_t window_index = 0;
  uint32_t micro_steps = 0;
  uint32_t min_micro_steps = 0;
  uint32_t max_micro_steps = 0;
  uint32_t active_ranks = 0;
  bool late = false;
  bool disagreed = false;
  int64_t item_count = 0;
  bool policy_adopted = false;
  bool policy_offered = false;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CAPI_CLOSED_WINDOW_H_
