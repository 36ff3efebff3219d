// The two tables of gradgatectl top. Pure functions; any thread.

#ifndef GRADGATE_CLIENT_CLI_TOP_TABLES_H_
#define GRADGATE_CLIENT_CLI_TOP_TABLES_H_

#include <string>
#include <vector>

#include "client/cli/top_model.h"
#include "client/cli/top_view.h"

namespace gradgate::cli {

// Lines as they are laid out; columns that a narrow frame has no room for are left out.
struct TopTable {
  std::string head;
  std::vector<TopLine> rows;
};

// A row for each of the model's jobs, in their order; the selected one is marked.
TopTable TopJobsTable(const TopModel& model, const TopJob* selected, const TopFrame& frame);

// A row for each rank, in the order of `sort`, with equals by rank.
TopTable TopRanksTable(const TopModel& model, const TopJob& job, TopSort sort, const TopFrame& frame);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TOP_TABLES_H_
