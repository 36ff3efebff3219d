#include "client/cli/show.h"

#include "client/cli/wrap.h"

namespace gradgate::cli {

absl::StatusOr<bool> Show(const google::protobuf::Message& answer, bool json, JsonStyle style,
                          absl::FunctionRef<std::string()> view, Output* output) {
  const absl::StatusOr<std::string> text = json ? ToJson(answer, style) : WrapLines(view(), output->columns());
  if (!text.ok()) return text.status();
  const bool open = output->Write(*text);
  if (!output->status().ok()) return output->status();
  return open;
}

}  // namespace gradgate::cli
