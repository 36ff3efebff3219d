// Answers as JSON: field names as in the .proto, fields without presence printed though they are 0, int64 as strings
// (protobuf's own mapping). Any thread.

#ifndef GRADGATE_CLIENT_CLI_JSON_H_
#define GRADGATE_CLIENT_CLI_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

namespace gradgate::cli {

enum class JsonStyle {
  kIndented,  // over several lines
  kOneLine,
};

// Ends in a newline. INTERNAL: a time or duration that JSON cannot say.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message, JsonStyle style);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_JSON_H_
