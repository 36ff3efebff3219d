// How far a policy is, from what each rank's page says. Pure.

#ifndef GRADGATE_DAEMON_POLICY_POLICY_STATE_H_
#define GRADGATE_DAEMON_POLICY_POLICY_STATE_H_

#include "daemon/node/views.h"
#include "gradgate/v1/policy.pb.h"

namespace gradgate {

// Where one rank is.
v1::RankPolicy ToRankPolicy(const RankView& rank, const std::string& node_name);

// Sets `state`, `adopted_window_index` and `detail` from the other fields: job, proposed, ranks, nodes.
//   ADOPTED   every rank of the job that lives has it in force
//   REJECTED  some rank that lives cannot carry it out
//   STAGED    every rank has it, in force or waiting for the ballot
//   PROPOSED  some rank has not read it yet, or cannot be seen from here
void Judge(v1::PolicyStatus* status);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_POLICY_POLICY_STATE_H_
