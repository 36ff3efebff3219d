#include "client/cli/json.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

namespace gradgate::cli {

absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message, JsonStyle style) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = style == JsonStyle::kIndented;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) return absl::InternalError(absl::StrCat("the answer cannot be written as JSON: ", status.ToString()));
  if (json.empty() || json.back() != '\n') json += '\n';
  return json;
}

}  // namespace gradgate::cli
