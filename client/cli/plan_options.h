// The flags of `gradgatectl plan`: one for each number that a plan is made from. Pure; one thread.

#ifndef GRADGATE_CLIENT_CLI_PLAN_OPTIONS_H_
#define GRADGATE_CLIENT_CLI_PLAN_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <vector>

#include "client/planner/numbers.h"

namespace gradgate::cli {

struct PlanOptions {
  planner::Numbers numbers;
  std::vector<planner::Numbers> what_ifs;
};

// Adds them to `command`; `options` outlives it, and is filled when it is parsed.
void AddPlanOptions(CLI::App* command, PlanOptions* options);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_PLAN_OPTIONS_H_
