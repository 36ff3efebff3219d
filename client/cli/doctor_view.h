// What a diagnosis looks like on a terminal: the worst first, each verdict with its evidence and what to do. Pure functions;
// any thread.

#ifndef GRADGATE_CLIENT_CLI_DOCTOR_VIEW_H_
#define GRADGATE_CLIENT_CLI_DOCTOR_VIEW_H_

#include <string>

#include "absl/time/time.h"
#include "gradgate/v1/diagnosis.pb.h"

namespace gradgate::cli {

// No line is wider than `columns` but for words that are; `now` is for how long the job runs.
inline constexpr size_t kDoctorColumns = 100;
std::string DoctorView(const v1::DiagnoseResponse& response, absl::Time now, size_t columns = kDoctorColumns);

// "WARNING"; "?" for one that this build does not know.
const char* SeverityWord(v1::Severity severity);

// "wasted_reductions"; a kind that this build does not know, as its number.
std::string VerdictWord(v1::VerdictKind kind);

// Whether anything is worse than a notice.
bool HasTrouble(const v1::DiagnoseResponse& response);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_DOCTOR_VIEW_H_
