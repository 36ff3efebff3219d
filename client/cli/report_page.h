// A job's report: one HTML file that needs nothing else, neither network nor scripts, and forbids both. Pure function; any
// thread.

#ifndef GRADGATE_CLIENT_CLI_REPORT_PAGE_H_
#define GRADGATE_CLIENT_CLI_REPORT_PAGE_H_

#include <string>

#include "client/cli/report_data.h"

namespace gradgate::cli {

// Below 1 MB whatever the number of ranks. `version`: of gradgatectl.
std::string ReportPage(const ReportAnswers& answers, absl::string_view version);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_REPORT_PAGE_H_
