#include "tests/fuzz/answers.h"

#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "daemon/node/text_check.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/reflection.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/timestamp.pb.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

using google::protobuf::FieldDescriptor;

// Protobuf tells each text that is no UTF-8, of which inputs are full.
[[maybe_unused]] google::protobuf::LogHandler* const former_handler = google::protobuf::SetLogHandler(nullptr);

using google::protobuf::Message;

void CheckTime(const google::protobuf::Timestamp& time, const FieldDescriptor& field) {
  FUZZ_CHECK(time.seconds() >= 0 && time.seconds() <= 253402300799, field.full_name() + " " + time.ShortDebugString());
  FUZZ_CHECK(time.nanos() >= 0 && time.nanos() < 1'000'000'000, field.full_name() + " " + time.ShortDebugString());
}

void CheckDuration(const google::protobuf::Duration& duration, const FieldDescriptor& field) {
  FUZZ_CHECK(duration.seconds() >= 0 && duration.seconds() <= 315'576'000'000,
             field.full_name() + " " + duration.ShortDebugString());
  FUZZ_CHECK(duration.nanos() >= 0 && duration.nanos() < 1'000'000'000, field.full_name() + " " + duration.ShortDebugString());
}

void CheckNested(const Message& nested, const FieldDescriptor& field, bool all) {
  if (nested.GetDescriptor() == google::protobuf::Timestamp::descriptor()) {
    CheckTime(static_cast<const google::protobuf::Timestamp&>(nested), field);
  } else if (nested.GetDescriptor() == google::protobuf::Duration::descriptor()) {
    CheckDuration(static_cast<const google::protobuf::Duration&>(nested), field);
  } else {
    CheckMessage(nested, all);
  }
}

void CheckScalar(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      FUZZ_CHECK(reflection.GetInt32(message, &field) >= 0, field.full_name());
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      FUZZ_CHECK(reflection.GetInt64(message, &field) >= 0, field.full_name());
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      FUZZ_CHECK(std::isfinite(reflection.GetDouble(message, &field)), field.full_name());
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      FUZZ_CHECK(field.enum_type()->FindValueByNumber(reflection.GetEnumValue(message, &field)) != nullptr, field.full_name());
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      FUZZ_CHECK(IsPrintableUtf8(reflection.GetString(message, &field)),
                 field.full_name() + ": " + reflection.GetString(message, &field));
      break;
    default:
      break;
  }
}

using SeriesLabels = std::set<std::pair<std::string, std::string>>;

void CheckMetric(const prometheus::MetricFamily& family, const prometheus::ClientMetric& metric) {
  for (const double value : {metric.counter.value, metric.gauge.value, metric.histogram.sample_sum}) {
    FUZZ_CHECK(std::isfinite(value), family.name);
    FUZZ_CHECK(value >= 0 || family.type == prometheus::MetricType::Gauge, family.name + " " + std::to_string(value));
  }
  uint64_t below = 0;
  for (const auto& bucket : metric.histogram.bucket) {
    FUZZ_CHECK(bucket.cumulative_count >= below, family.name);
    below = bucket.cumulative_count;
  }
  FUZZ_CHECK(metric.histogram.sample_count >= below, family.name);
}

}  // namespace

void CheckShown(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    FUZZ_CHECK((byte >= 0x20 || byte == '\n') && byte != 0x7f && !(byte == 0xc2 && next >= 0x80 && next < 0xa0), text);
  }
}

void CheckMessage(const Message& message, bool all) {
  const auto& reflection = *message.GetReflection();
  const auto& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      for (const std::string& text : reflection.GetRepeatedFieldRef<std::string>(message, &field)) {
        FUZZ_CHECK(IsPrintableUtf8(text), field.full_name() + ": " + text);
      }
    } else if (field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
      for (const int32_t value : reflection.GetRepeatedFieldRef<int32_t>(message, &field)) {
        FUZZ_CHECK(value >= 0, field.full_name());
      }
    } else if (field.is_repeated()) {
      const int count = reflection.FieldSize(message, &field);
      for (int k = 0; k < (all ? count : std::min(count, 1)); ++k) {
        CheckNested(reflection.GetRepeatedMessage(message, &field, k), field, all);
      }
    } else if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      CheckScalar(message, field);
    } else if (reflection.HasField(message, &field)) {
      CheckNested(reflection.GetMessage(message, &field), field, all);
    }
  }
}

void CheckFamilies(const std::vector<prometheus::MetricFamily>& families) {
  std::set<std::string> names;
  for (const prometheus::MetricFamily& family : families) {
    FUZZ_CHECK(names.insert(family.name).second, family.name + " appears twice");
    FUZZ_CHECK(!family.metric.empty(), family.name + " is empty");
    std::set<SeriesLabels> series;
    for (const prometheus::ClientMetric& metric : family.metric) {
      CheckMetric(family, metric);
      SeriesLabels labels;
      for (const auto& label : metric.label) {
        FUZZ_CHECK(IsPrintableUtf8(label.value), family.name + " label " + label.name);
        labels.emplace(label.name, label.value);
      }
      FUZZ_CHECK(labels.size() == metric.label.size(), family.name + ": a label twice in one series");
      FUZZ_CHECK(series.insert(std::move(labels)).second, family.name + ": a series twice");
    }
  }
}

}  // namespace gradgate::fuzz
