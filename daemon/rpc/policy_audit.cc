#include "daemon/rpc/policy_audit.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/rpc/caller.h"
#include "daemon/rpc/method_gate.h"

namespace gradgate {
namespace {

using google::protobuf::FieldDescriptor;

std::string ValueOf(const v1::Policy& policy, const FieldDescriptor& field) {
  const auto& reflection = *policy.GetReflection();
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM) return absl::StrCat(reflection.GetInt64(policy, &field));
  const int number = reflection.GetEnumValue(policy, &field);
  const auto* value = field.enum_type()->FindValueByNumber(number);
  return value == nullptr ? absl::StrCat(number) : value->name();
}

}  // namespace

v1::AuditRecord RecordOf(const Caller& caller, const v1::SetPolicyRequest& request) {
  v1::AuditRecord record;
  *record.mutable_caller() = ToMessage(caller);
  record.set_action(request.validate_only() ? v1::AUDIT_ACTION_TRIAL : v1::AUDIT_ACTION_SET);
  record.set_actor(request.actor());
  record.set_method(std::string(kSetPolicyMethod));
  record.set_job(request.job());
  for (const std::string& path : request.update_mask().paths()) {
    v1::AuditChange& change = *record.add_changes();
    change.set_field(path);
    const FieldDescriptor* field = v1::Policy::descriptor()->FindFieldByName(path);
    if (field != nullptr) change.set_to(ValueOf(request.policy(), *field));
  }
  return record;
}

void NoteProposal(const v1::PolicyStatus& present, const v1::Policy& base, const Proposal& proposal, v1::AuditRecord* record) {
  record->set_run_id(proposal.job.run_id);
  record->set_job_user_id(proposal.job.user_id);
  record->set_from_version(present.proposed().version());
  record->clear_changes();
  bool is_given = true;  // as the trainers were
  for (int i = 0; i < v1::Policy::descriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *v1::Policy::descriptor()->field(i);
    const std::string from = ValueOf(base, field), to = ValueOf(proposal.policy, field);
    is_given = is_given && !proposal.policy.GetReflection()->HasField(proposal.policy, &field);
    if (from == to) continue;
    v1::AuditChange& change = *record->add_changes();
    change.set_field(field.name());
    change.set_from(from);
    change.set_to(to);
  }
  if (is_given && record->action() == v1::AUDIT_ACTION_SET) record->set_action(v1::AUDIT_ACTION_WITHDRAW);
}

void NoteOutcome(const absl::Status& status, int64_t version, v1::AuditRecord* record) {
  record->set_outcome(status.ok() ? v1::AUDIT_OUTCOME_ACCEPTED : v1::AUDIT_OUTCOME_REJECTED);
  record->set_to_version(version);
  record->set_reason(std::string(status.message()));
}

void NoteDenied(const absl::Status& why, v1::AuditRecord* record) {
  record->set_outcome(v1::AUDIT_OUTCOME_DENIED);
  record->set_reason(std::string(why.message()));
}

}  // namespace gradgate
