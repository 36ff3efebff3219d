// What `gradgatectl plan` shows. A pure function of an answer; any thread.

#ifndef GRADGATE_CLIENT_CLI_PLAN_VIEW_H_
#define GRADGATE_CLIENT_CLI_PLAN_VIEW_H_

#include <cstddef>
#include <string>

#include "gradgate/v1/plan.pb.h"

namespace gradgate::cli {

// What it is a plan for, a row for each mode, a row for each what-if, what to do and with which command, measurements, notes.
std::string PlanView(const v1::PlanSyncResponse& response, size_t width = 0);

// How a command line names the plan's job: its name as a shell takes it; one with anything else in it is left to its run id.
std::string ShellJob(const v1::PlanSyncResponse& response);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_PLAN_VIEW_H_
