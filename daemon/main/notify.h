// Tells systemd about the service's state (sd_notify's protocol: one datagram to $NOTIFY_SOCKET).

#ifndef GRADGATE_DAEMON_MAIN_NOTIFY_H_
#define GRADGATE_DAEMON_MAIN_NOTIFY_H_

#include <string>

namespace gradgate {

// Sends `state`, "READY=1" say, unless $NOTIFY_SOCKET is unset. Best effort, does not block.
void NotifyServiceManager(const std::string& state);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_MAIN_NOTIFY_H_
