#include "client/cli/help.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/wrap.h"

namespace gradgate::cli {
namespace {

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
  return names;
}

// Also those that stand before the command.
std::vector<std::string> OptionNames(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

// Letters to insert, remove or replace.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

// " did you mean …?"; empty where nothing is near.
std::string Nearest(const std::string& word, const std::vector<std::string>& names) {
  const std::string* best = nullptr;
  size_t least = word.size() / 3 + 1;
  for (const std::string& name : names) {
    const size_t distance = !word.empty() && absl::StartsWith(name, word) ? 0 : Distance(word, name);
    if (distance > least || (best != nullptr && distance == least)) continue;
    best = &name;
    least = distance;
  }
  return best == nullptr ? "" : absl::StrCat("; did you mean \"", *best, "\"?");
}

const CLI::App* Deepest(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  return app;
}

// "gradgatectl policy set".
std::string PathOf(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name() : absl::StrCat(PathOf(app->get_parent()), " ", app->get_name());
}

std::string Said(const CLI::App* deepest, const std::vector<std::string>& unknown, const CLI::ParseError& error) {
  const std::vector<std::string> commands = CommandNames(*deepest);
  if (unknown.empty()) {
    if (!commands.empty()) return absl::StrCat("a command is missing, one of ", absl::StrJoin(commands, ", "));
    return absl::StrReplaceAll(error.what(), {{"\n", " "}});
  }
  std::string word = unknown.front();
  if (absl::StartsWith(word, "-")) {
    word = word.substr(0, word.find('='));
    return absl::StrCat("unknown option \"", word, "\"", Nearest(word, OptionNames(deepest)));
  }
  if (!commands.empty()) return absl::StrCat("unknown command \"", word, "\"", Nearest(word, commands));
  return absl::StrCat("\"", word, "\" is one word too many");
}

}  // namespace

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return absl::StrCat(WrapLines(app->get_description(), kHelpColumns), "\n");
}

std::string HelpFormatter::make_subcommand(const CLI::App* sub) const {
  std::stringstream out;
  const std::vector<std::string> lines = Break(sub->get_description(), kHelpColumns - get_column_width());
  CLI::detail::format_help(out, sub->get_name(), absl::StrJoin(lines, "\n"), get_column_width());
  return out.str();
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  if (option->get_positional() || option->get_type_size() == 0) return "";
  std::string type = option->get_type_name();
  const size_t colon = type.find(':');  // behind it stands what a check says of itself
  if (colon != std::string::npos) {
    const std::string name = type.substr(0, colon), check = type.substr(colon + 1);
    const bool named_values = absl::StartsWith(check, "{") && name != "TEXT";
    type = named_values || absl::StrContains(check, " ") ? name : check;
  }
  if (!type.empty()) type.insert(0, " ");
  return option->get_default_str().empty() ? type : absl::StrCat(type, "=", option->get_default_str());
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return absl::StrJoin(Break(option->get_description(), kHelpColumns - get_column_width()), "\n");
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  return absl::StrCat(WrapLines(app->get_footer(), kHelpColumns), "\n");
}

std::string UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* deepest = Deepest(&app);
  return absl::StrCat(Said(deepest, app.remaining(true), error), "; ", PathOf(deepest), " --help tells how it is called");
}

}  // namespace gradgate::cli
