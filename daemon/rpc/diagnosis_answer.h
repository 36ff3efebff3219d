// Answers of Diagnose: what this node knows as evidence, and the verdicts over the evidence of all nodes. Pure but for the
// registry and the store that are asked.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_RPC_DIAGNOSIS_ANSWER_H_
#define GRADGATE_DAEMON_RPC_DIAGNOSIS_ANSWER_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/node/registry.h"
#include "daemon/rpc/parts.h"
#include "daemon/store/store.h"
#include "gradgate/v1/diagnosis.pb.h"

namespace gradgate {

// This node's part: the job and its evidence, no verdicts. `store` may be null. Errors as Registry::GetEvidence.
absl::StatusOr<v1::DiagnoseResponse> AnswerEvidence(const v1::DiagnoseRequest& request, const std::string& node_name,
                                                    const Store* store, Registry& registry);

// What another node's part must hold to be judged. DATA_LOSS names what is wrong.
absl::Status CheckEvidence(const v1::DiagnoseResponse& part);

// Judges once, over all parts. `with_evidence`: the answer keeps them.
v1::DiagnoseResponse Judge(Parts<v1::DiagnoseResponse> parts, bool other_nodes_asked, bool with_evidence);

// Running jobs of this node by the kind of verdict they have ("hung"), as this node alone sees them; 0 for those that none has.
std::map<std::string, int64_t> CountVerdicts(Registry& registry);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_DIAGNOSIS_ANSWER_H_
