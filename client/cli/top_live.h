// gradgatectl top on a terminal: keys, signals, new sizes and answers, each as it comes. One thread, which is never kept by the
// daemon nor by a terminal that takes nothing.

#ifndef GRADGATE_CLIENT_CLI_TOP_LIVE_H_
#define GRADGATE_CLIENT_CLI_TOP_LIVE_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/top_source.h"
#include "client/cli/top_text.h"
#include "client/client_options.h"

namespace gradgate::cli {

struct TopLook {
  Charset charset = Charset::kAscii;
  bool colours = false;
};

// Until q, Ctrl-C, SIGTERM, SIGHUP, SIGQUIT, or a terminal that is gone: OK. Errors: Connection::Create's, and of the first
// answer, with nothing drawn.
absl::Status RunTopLive(const client::ClientOptions& options, const TopQuestion& question, absl::Duration interval,
                        const TopLook& look);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TOP_LIVE_H_
