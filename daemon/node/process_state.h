// What the kernel says a process is doing, as one letter: R running, S sleeping, D waiting for a device, T stopped by a signal,
// t stopped by a debugger, Z dead.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_NODE_PROCESS_STATE_H_
#define GRADGATE_DAEMON_NODE_PROCESS_STATE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace gradgate {

// `process_id` is in this daemon's own pid namespace, as SO_PEERCRED tells it. Empty: there is none, or it cannot be seen.
std::string ReadProcessState(int32_t process_id);

// The letter in a line of /proc/PID/stat; empty where it has none. The name before it may hold anything.
std::string ParseProcessState(absl::string_view stat_line);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_PROCESS_STATE_H_
