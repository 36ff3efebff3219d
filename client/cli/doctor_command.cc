#include "client/cli/doctor_command.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "client/cli/doctor_view.h"
#include "client/cli/show.h"
#include "client/diagnosis_client.h"

namespace gradgate::cli {

absl::StatusOr<bool> RunDoctor(const Options& options, Output* output) {
  const auto connection = client::Connection::Create(options.client);
  if (!connection.ok()) return connection.status();
  v1::DiagnoseRequest request;
  request.set_job(options.job);
  request.set_scope(options.local ? v1::SCOPE_NODE : v1::SCOPE_JOB);
  request.set_evidence(options.evidence);
  const auto response = client::Diagnose(**connection, request);
  if (!response.ok()) return response.status();
  const size_t width = std::min(output->columns(), kDoctorColumns);  // 0, for any, stays 0
  const auto shown = Show(
      *response, options.json, JsonStyle::kIndented, [&] { return DoctorView(*response, absl::Now(), width); }, output);
  if (!shown.ok()) return shown.status();
  return HasTrouble(*response);
}

}  // namespace gradgate::cli
