// What gradgatectl's exit status means to scripts. Never renumbered.

#ifndef GRADGATE_CLIENT_CLI_EXIT_CODE_H_
#define GRADGATE_CLIENT_CLI_EXIT_CODE_H_

#include "absl/status/status.h"

namespace gradgate::cli {

inline constexpr int kExitOk = 0;  // also a watch that was interrupted
inline constexpr int kExitError =
    1;  // the daemon refused, did not answer in time, a policy was not adopted, or the output could not be written
inline constexpr int kExitUsage = 2;     // the command line is wrong
inline constexpr int kExitNoDaemon = 3;  // no gradgated there, or it went away
inline constexpr int kExitNoJob = 4;     // the daemon knows no such job
inline constexpr int kExitTrouble = 5;   // doctor: something is wrong with the job

inline int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kUnavailable:
      return kExitNoDaemon;
    case absl::StatusCode::kNotFound:
      return kExitNoJob;
    default:
      return kExitError;
  }
}

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_EXIT_CODE_H_
