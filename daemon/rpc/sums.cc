#include "daemon/rpc/sums.h"

#include <algorithm>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace gradgate {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void AddDuration(const google::protobuf::Duration& from, google::protobuf::Duration* to) {
  constexpr int64_t kNanos = 1'000'000'000;
  const int64_t nanos = std::clamp<int64_t>(from.nanos(), 0, kNanos - 1) + to->nanos();
  to->set_seconds(AddCounts(AddCounts(to->seconds(), from.seconds()), nanos / kNanos));
  to->set_nanos(static_cast<int32_t>(nanos % kNanos));
}

// Adds every count and duration of `from`; whatever else it has is left.
void AddFields(const Message& from, Message* to) {
  const auto* reflection = from.GetReflection();
  const auto* descriptor = from.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      reflection->SetInt64(to, field, AddCounts(reflection->GetInt64(*to, field), reflection->GetInt64(from, field)));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
               field->message_type() == google::protobuf::Duration::descriptor()) {
      AddDuration(static_cast<const google::protobuf::Duration&>(reflection->GetMessage(from, field)),
                  static_cast<google::protobuf::Duration*>(reflection->MutableMessage(to, field)));
    }
  }
}

}  // namespace

int64_t AddCounts(int64_t a, int64_t b) {
  a = std::max<int64_t>(a, 0);
  b = std::max<int64_t>(b, 0);
  return a > INT64_MAX - b ? INT64_MAX : a + b;
}

void Sums::Add(const v1::RankStats& rank) {
  AddFields(rank.totals(), &totals_);
  for (const v1::CollectiveStats& collective : rank.collectives()) {
    v1::CollectiveStats& sum = collectives_[{collective.group(), collective.op()}];
    sum.set_group(collective.group());
    sum.set_op(collective.op());
    AddFields(collective, &sum);
  }
}

void Sums::Fill(v1::GetJobStatsResponse* response) const {
  *response->mutable_totals() = totals_;
  response->clear_collectives();
  for (const auto& [key, collective] : collectives_) *response->add_collectives() = collective;
}

}  // namespace gradgate
