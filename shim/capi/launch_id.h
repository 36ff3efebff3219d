// Which launch this process is of: what tells a restart by the launcher from another run of the same name. Rank 0's word
// counts, the handshake hands it to all ranks; so it need not be the same on all of them, but never that of another launch.
//
//   GRADGATE_LAUNCH   whoever starts the job promises that no other run has the value, and that its restarts have it again
//   torchrun's agent  starts all attempts of its worker group on a node: run id, log folder (which each agent makes anew, with
//   a
//                     random name), and the agent's own process. A launch whose rank 0 comes under another agent is a new one
//   else              not known: Slurm's job id, for one, is that of all runs in the job
//
// Several memberships of one process are told apart by their order, several groups by the process of their rank 0.
//
// Thread class: any thread. Reads the environment and /proc.

#ifndef GRADGATE_SHIM_CAPI_LAUNCH_ID_H_
#define GRADGATE_SHIM_CAPI_LAUNCH_ID_H_

#include <array>
#include <cstdint>
#include <string>

namespace gradgate {

using LaunchId = std::array<uint8_t, 16>;  // zero: not known

// What is known of it. Empty text: not there.
struct LaunchSigns {
  std::string given;       // GRADGATE_LAUNCH
  std::string run_id;      // torchrun's, "none" where nobody gave one
  std::string error_file;  // …/RUN_ID_random/attempt_N/LOCAL_RANK/error.json
  std::string parent;      // boot, pid namespace, pid and start of the process that started this one
  std::string rank;        // of this process among those of the launch
};

LaunchSigns ReadLaunchSigns();

// `ordinal`: memberships of this process before this one.
LaunchId MakeLaunchId(const LaunchSigns& signs, uint32_t ordinal);

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CAPI_LAUNCH_ID_H_
