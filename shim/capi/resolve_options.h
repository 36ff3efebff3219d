// Turns the options of gradgate.h and the environment into checked ones: defaults, launcher variables, and a clear error for
// each bad value.

#ifndef GRADGATE_SHIM_CAPI_RESOLVE_OPTIONS_H_
#define GRADGATE_SHIM_CAPI_RESOLVE_OPTIONS_H_

#include "shim/capi/ledger.h"
#include "shim/capi/session.h"
#include "shim/core/status.h"
#include "shim/include/gradgate/gradgate.h"

namespace gradgate {

// Read: /proc/self/cmdline for the program's name, and the environment: GRADGATE, GRADGATE_JOB, GRADGATE_DIR, GRADGATE_ATTEMPT,
// and the launchers' TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT, SLURM_JOB_NAME, SLURM_RESTART_COUNT, LOCAL_RANK,
// SLURM_LOCALID, OMPI_COMM_WORLD_LOCAL_RANK. What launch_id.h reads is read there.
Status ResolveOptions(const gg_session_options& in, SessionOptions* out);
Status ResolveOptions(const gg_ledger_options& in, LedgerOptions* out);

// A deadline as the caller gave it, or `fallback_ns` for 0. Longer than a year is as good as a year, and does not overflow.
int64_t DeadlineOrDefault(int64_t deadline_ns, int64_t fallback_ns);

// Restarts by the launcher so far, from the environment; keeps the keys of one attempt apart from another's.
uint32_t AttemptFromEnvironment();

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CAPI_RESOLVE_OPTIONS_H_
