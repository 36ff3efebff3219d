// gradgatectl: asks a gradgated, shows the answer. Wires the parts; every decision is theirs.

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cancellation.h"
#include "client/cli/certs_command.h"
#include "client/cli/commands.h"
#include "client/cli/doctor_command.h"
#include "client/cli/exit_code.h"
#include "client/cli/format.h"
#include "client/cli/interrupter.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/plan_command.h"
#include "client/cli/report_command.h"
#include "client/cli/top_command.h"
#include "client/cli/wrap.h"
#include "client/connection.h"

namespace gradgate::cli {
namespace {

// One line; on a terminal as many as it takes.
int Fail(absl::string_view message, int exit_code) {
  Output error(STDERR_FILENO);
  error.Write(WrapLines(absl::StrCat("gradgatectl: ", Printable(message), "\n"), error.columns()));
  return exit_code;
}

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);        // Output sees EPIPE instead
  setenv("GRPC_VERBOSITY", "NONE", 0);  // its errors come back as ours, in one line
  const auto parsed = ParseOptions(argc, argv);
  Output output(STDOUT_FILENO);
  if (const auto* leave = std::get_if<Leave>(&parsed)) {
    if (leave->exit_code != kExitOk) return Fail(leave->text, leave->exit_code);
    output.Write(leave->text);
    return ExitCode(output.status());
  }
  const Options& options = std::get<Options>(parsed);
  if (options.command == Command::kPlan) {  // numbers alone need no daemon
    const absl::Status planned = RunPlan(options, &output);
    const bool usage = absl::IsInvalidArgument(planned) && options.job.empty();
    return planned.ok() ? kExitOk : Fail(planned.message(), usage ? kExitUsage : ExitCode(planned));
  }
  if (options.command == Command::kTop || options.command == Command::kReport) {
    const absl::Status seen = options.command == Command::kTop ? RunTop(options, &output) : RunReport(options, &output);
    return seen.ok() ? kExitOk : Fail(seen.message(), ExitCode(seen));
  }
  if (options.command == Command::kDoctor) {
    const absl::StatusOr<bool> trouble = RunDoctor(options, &output);
    if (!trouble.ok()) return Fail(trouble.status().message(), ExitCode(trouble.status()));
    return *trouble ? kExitTrouble : kExitOk;
  }
  if (options.command == Command::kCerts) {
    const absl::StatusOr<std::string> text = MakeCerts(options.certs, absl::Now());
    if (!text.ok()) return Fail(text.status().message(), absl::IsInvalidArgument(text.status()) ? kExitUsage : kExitError);
    output.Write(*text);
    return ExitCode(output.status());
  }
  client::Cancellation cancellation;
  std::optional<Interrupter> interrupter;
  const bool watches =
      options.command == Command::kWatch || options.command == Command::kPolicyWatch || options.command == Command::kPolicySet;
  if (watches) interrupter.emplace(&cancellation);
  const auto connection = client::Connection::Create(options.client);
  if (absl::IsInvalidArgument(connection.status())) return Fail(connection.status().message(), kExitUsage);
  if (!connection.ok()) return Fail(connection.status().message(), ExitCode(connection.status()));
  const absl::Status status = RunCommand(*connection, options, &cancellation, &output);
  return status.ok() ? kExitOk : Fail(status.message(), ExitCode(status));
}

}  // namespace
}  // namespace gradgate::cli

int main(int argc, char** argv) {
  try {
    return gradgate::cli::Main(argc, argv);
  } catch (const std::exception& error) {
    return gradgate::cli::Fail(error.what(), gradgate::cli::kExitError);
  }
}
