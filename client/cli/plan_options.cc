#include "client/cli/plan_options.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace gradgate::cli {
namespace {

// CLI11 takes a failure as an exception, and puts no name before its message.
[[noreturn]] void Refuse(const absl::Status& status) { throw CLI::ValidationError(std::string(status.message())); }

void AddNumber(CLI::App* command, const planner::Field& field, planner::Numbers* numbers) {
  const auto take = [&field, numbers](const std::string& text) {
    const auto value = planner::ParseValue(field, text);
    if (!value.ok()) Refuse(absl::Status(value.status().code(), absl::StrCat("--", value.status().message())));
    numbers->*field.value = *value;
  };
  command->add_option_function<std::string>(absl::StrCat("--", field.key), take, field.about)->type_name("");
}

planner::Mode ParseMode(const std::string& text) {
  if (text == "every_micro_step") return {planner::Sync::kEvery, false};
  if (text == "window_replica") return {planner::Sync::kReplica, false};
  if (text == "window") return {planner::Sync::kWindow, false};
  if (text == "window_replica,kept") return {planner::Sync::kReplica, true};
  if (text == "window,kept") return {planner::Sync::kWindow, true};
  Refuse(absl::InvalidArgumentError(
      absl::StrCat("--mode: \"", text,
                   "\" is not every_micro_step, window_replica or window, the last two with \",kept\" where parameters are")));
}

}  // namespace

void AddPlanOptions(CLI::App* command, PlanOptions* options) {
  for (const planner::Field& field : planner::Fields()) AddNumber(command, field, &options->numbers);
  command
      ->add_option_function<std::string>(
          "--mode", [options](const std::string& text) { options->numbers.present = ParseMode(text); },
          "The present mode, which others are compared with: every_micro_step, window_replica or window")
      ->type_name("MODE:{every_micro_step,window_replica,window}");
  const auto add_what_ifs = [options](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const auto changes = planner::ParseChanges(text);
      if (!changes.ok()) Refuse(absl::InvalidArgumentError(absl::StrCat("--what-if: ", changes.status().message())));
      options->what_ifs.push_back(*changes);
    }
  };
  command
      ->add_option_function<std::vector<std::string>>(
          "--what-if", add_what_ifs, "Other numbers, as link-gbit=400 or ranks=128,accumulate=8; may be given several times")
      ->type_name("KEY=VALUE[,…]");
}

}  // namespace gradgate::cli
