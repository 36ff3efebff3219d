// Prints how often each job reduces per optimizer step.

#include <iostream>

#include "client/sync_stats_client.h"

int main() {
  const auto client = gradgate::client::SyncStatsClient::Create({});  // default socket, 5 s a call
  if (!client.ok()) {
    std::cerr << client.status().message() << "\n";
    return 1;
  }
  const auto jobs = (*client)->ListJobs();
  if (!jobs.ok()) {
    std::cerr << jobs.status().message() << "\n";
    return 1;
  }
  for (const auto& job : jobs->jobs()) {
    const auto stats = (*client)->GetJobStats(job.run_id());
    if (!stats.ok()) continue;  // forgotten meanwhile
    const auto& totals = stats->totals();
    std::cout << job.job_name() << ": " << totals.reduction_issued_count() << " reductions for " << totals.step_count()
              << " optimizer steps\n";
  }
  return 0;
}
