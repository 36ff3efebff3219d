// What a diagnosis looks like on a terminal: the worst first, each verdict with its evidence and what to do. Pure functions;
// any thread.

#ifndef GRADGATE_CLIENT_CLI_DOCTOR_VIEW_H_
#define GRADGATE_CLIENT_CLI_DOCTOR_VIEW_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "gradgate/v1/diagnosis.pb.h"

namespace gradgate::cli {

// `now` is for how long the job runs. `width`: of a line, as WrapLines has it; 0: any. Sentences wider than kDoctorColumns are
// hard to read, whatever the terminal is.
inline constexpr size_t kDoctorColumns = 100;
std::string DoctorView(const v1::DiagnoseResponse& response, absl::Time now, size_t width = 0);

// "CRITICAL"; "?" for one that this build does not know.
const char* SeverityWord(v1::Severity severity);

// "wasted_reductions"; a kind that this build does not know, as its number.
std::string VerdictWord(v1::VerdictKind kind);

// Whether anything is worse than a notice.
bool HasTrouble(const v1::DiagnoseResponse& response);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_DOCTOR_VIEW_H_
