// Finds what is wrong in an answer and says it in lines that begin with "!", by rank. Pure functions; any thread.

#ifndef GRADGATE_CLIENT_CLI_PROBLEMS_H_
#define GRADGATE_CLIENT_CLI_PROBLEMS_H_

#include <string>

#include "gradgate/v1/stats.pb.h"

namespace gradgate::cli {

// Lost and failed ranks, mismatched and disagreed windows, refused steps, failed collectives, warnings, missed events and
// windows: one line each where there are any, else empty.
std::string JobProblems(const v1::GetJobStatsResponse& response);

// Mismatched, disagreed and failed ranks of one window.
std::string WindowProblems(const v1::Window& window);

// The same of many windows: how many, and the last of them with its ranks.
std::string WindowProblems(const v1::ListWindowsResponse& response);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_PROBLEMS_H_
