// What the audit log is told of a SetPolicy. Pure.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_RPC_POLICY_AUDIT_H_
#define GRADGATE_DAEMON_RPC_POLICY_AUDIT_H_

#include "absl/status/status.h"
#include "daemon/policy/policy_desk.h"
#include "daemon/rpc/access.h"
#include "gradgate/v1/audit.pb.h"
#include "gradgate/v1/policy.pb.h"

namespace gradgate {

// As it was asked for: who, which job, which fields to what. The outcome is open.
v1::AuditRecord RecordOf(const Caller& caller, const v1::SetPolicyRequest& request);

// The job was found, and this is what would become of the policy `base` in `present`.
void NoteProposal(const v1::PolicyStatus& present, const v1::Policy& base, const Proposal& proposal, v1::AuditRecord* record);

// The caller may; `version`: the new one, 0 for none.
void NoteOutcome(const absl::Status& status, int64_t version, v1::AuditRecord* record);

// The caller may not.
void NoteDenied(const absl::Status& why, v1::AuditRecord* record);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_POLICY_AUDIT_H_
