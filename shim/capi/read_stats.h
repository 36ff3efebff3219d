// What a session or a ledger tells, as gradgate.h's structs.

#ifndef GRADGATE_SHIM_CAPI_READ_STATS_H_
#define GRADGATE_SHIM_CAPI_READ_STATS_H_

#include "proto/shm/stats_page.h"
#include "shim/capi/closed_window.h"
#include "shim/core/policy_stage.h"
#include "shim/core/status.h"
#include "shim/include/gradgate/gradgate.h"

namespace gradgate {

gg_window ToC(const ClosedWindow& report);
gg_policy ToC(const SyncPolicy& policy, uint64_t adopted_window);
// Checked before the window is closed: a call that cannot answer must not act.
Status CheckWindow(const gg_window* window);

// Any thread may read while others count.
gg_stats ReadStats(const page::StatsPage& page, bool linked);
gg_collective_stats ReadCell(const page::CollectiveCell& cell);
gg_role_stats ReadRole(const page::RoleTotals& role);
// kInvalidArgument, or ok.
Status CheckCell(gg_group group, gg_op op);

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CAPI_READ_STATS_H_
