// What this node tells the doctor of a job, as a message that other daemons can ask for. Pure functions.

#ifndef GRADGATE_DAEMON_RPC_EVIDENCE_H_
#define GRADGATE_DAEMON_RPC_EVIDENCE_H_

#include "daemon/node/views.h"
#include "gradgate/v1/diagnosis.pb.h"

namespace gradgate {

// All but what the store knows.
v1::NodeEvidence ToEvidence(const JobEvidenceView& view);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_EVIDENCE_H_
