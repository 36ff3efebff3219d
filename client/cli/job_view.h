// What `gradgatectl jobs` and `gradgatectl status` show. Pure functions of an answer, the present time and the
// columns of the terminal, to which tables are fitted (0: any); any thread.

#ifndef GRADGATE_CLIENT_CLI_JOB_VIEW_H_
#define GRADGATE_CLIENT_CLI_JOB_VIEW_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::cli {

// One line: name, state, run, mode, N, ranks, windows, duration.
std::string JobHeadLine(const v1::Job& job, absl::Time now);

// A line beginning with "!" for each job with lost or failed ranks, then a table.
std::string JobsView(const v1::ListJobsResponse& response, absl::Time now, size_t width = 0);

// Head line, problems, totals, ranks, collectives: what matters first stands first.
std::string StatusView(const v1::GetJobStatsResponse& response, absl::Time now, size_t width = 0);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_JOB_VIEW_H_
