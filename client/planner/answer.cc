#include "client/planner/answer.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace gradgate::planner {
namespace {

using google::protobuf::FieldDescriptor;

// Whole, and no more than an int64 holds.
int64_t Whole(double value) {
  constexpr double kMost = 9.2e18;
  return std::llround(std::clamp(value, 0.0, kMost));
}

v1::SyncMode ToMessage(Sync sync) {
  return sync == Sync::kEvery     ? v1::SYNC_MODE_EVERY_MICRO_STEP
         : sync == Sync::kReplica ? v1::SYNC_MODE_WINDOW_REPLICA
                                  : v1::SYNC_MODE_WINDOW;
}

v1::Reshard ReshardOf(bool kept) { return kept ? v1::RESHARD_WINDOW : v1::RESHARD_EVERY_MICRO_STEP; }

v1::Sharding ToMessage(Sharding sharding) {
  return sharding == Sharding::kNone   ? v1::SHARDING_NONE
         : sharding == Sharding::kFull ? v1::SHARDING_FULL
                                       : v1::SHARDING_HYBRID;
}

v1::ModePlan ToMessage(const ModeCost& cost) {
  v1::ModePlan out;
  out.set_sync_mode(ToMessage(cost.mode.sync));
  out.set_reshard(ReshardOf(cost.mode.kept));
  out.set_present(cost.present);
  out.set_best(cost.best);
  out.set_step_seconds(cost.step_seconds);
  out.set_min_step_seconds(cost.min_step_seconds);
  out.set_max_step_seconds(cost.max_step_seconds);
  out.set_exposed_seconds(cost.exposed_seconds);
  out.set_speedup(cost.speedup);
  out.set_reduction_count(Whole(cost.reduction_count));
  out.set_collective_count(Whole(cost.collective_count));
  out.set_intra_bytes(Whole(cost.intra_bytes));
  out.set_inter_bytes(Whole(cost.inter_bytes));
  out.set_memory_bytes(Whole(cost.memory_bytes));
  out.set_deferred_gradient_bytes(Whole(cost.deferred_gradient_bytes));
  out.set_kept_parameter_bytes(Whole(cost.kept_parameter_bytes));
  out.set_fit(!cost.fits ? v1::FIT_UNSPECIFIED : *cost.fits ? v1::FIT_YES : v1::FIT_NO);
  return out;
}

v1::Plan ToMessage(const Plan& plan) {
  v1::Plan out;
  out.set_label(plan.label);
  *out.mutable_numbers() = ToMessage(plan.numbers);
  out.set_sharding(ToMessage(plan.sharding));
  for (const ModeCost& cost : plan.modes) *out.add_modes() = ToMessage(cost);
  out.set_why(plan.why);
  out.set_relative_throughput(plan.relative_throughput);
  return out;
}

}  // namespace

Numbers FromMessage(const v1::PlanNumbers& message) {
  Numbers numbers;
  const auto* reflection = v1::PlanNumbers::GetReflection();
  for (const Field& field : Fields()) {
    const FieldDescriptor* descriptor = v1::PlanNumbers::descriptor()->FindFieldByName(field.proto);
    if (!reflection->HasField(message, descriptor)) continue;
    numbers.*field.value = descriptor->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE
                               ? reflection->GetDouble(message, descriptor)
                               : static_cast<double>(reflection->GetInt64(message, descriptor));
  }
  if (message.present_mode() != v1::SYNC_MODE_UNSPECIFIED && message.present_mode() != v1::SYNC_MODE_AUTO) {
    const Sync sync = message.present_mode() == v1::SYNC_MODE_WINDOW           ? Sync::kWindow
                      : message.present_mode() == v1::SYNC_MODE_WINDOW_REPLICA ? Sync::kReplica
                                                                               : Sync::kEvery;
    numbers.present = Mode{sync, message.present_reshard() == v1::RESHARD_WINDOW};
  }
  return numbers;
}

v1::PlanNumbers ToMessage(const Numbers& numbers) {
  v1::PlanNumbers message;
  const auto* reflection = v1::PlanNumbers::GetReflection();
  for (const Field& field : Fields()) {
    const Numbers::Value& value = numbers.*field.value;
    if (!value) continue;
    const FieldDescriptor* descriptor = v1::PlanNumbers::descriptor()->FindFieldByName(field.proto);
    if (descriptor->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      reflection->SetDouble(&message, descriptor, *value);
    } else {
      reflection->SetInt64(&message, descriptor, Whole(*value));
    }
  }
  if (numbers.present) {
    message.set_present_mode(ToMessage(numbers.present->sync));
    message.set_present_reshard(ReshardOf(numbers.present->kept));
  }
  return message;
}

v1::PlanSyncResponse ToMessage(const Answer& answer) {
  v1::PlanSyncResponse out;
  out.set_advice(answer.advice);
  out.set_policy(answer.policy);
  *out.mutable_plan() = ToMessage(answer.plan);
  for (const Plan& plan : answer.what_ifs) *out.add_what_ifs() = ToMessage(plan);
  for (const std::string& note : answer.notes) out.add_notes(note);
  return out;
}

absl::StatusOr<v1::PlanSyncResponse> AnswerFromNumbers(const v1::PlanSyncRequest& request) {
  Question question;
  question.numbers = FromMessage(request.numbers());
  for (const v1::PlanNumbers& changes : request.what_ifs()) question.what_ifs.push_back(FromMessage(changes));
  const absl::StatusOr<Answer> answer = MakePlan(question);
  if (!answer.ok()) return answer.status();
  return ToMessage(*answer);
}

}  // namespace gradgate::planner
