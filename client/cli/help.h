// How gradgatectl's command line explains itself: help no wider than a terminal, and what was perhaps meant. Any thread.

#ifndef GRADGATE_CLIENT_CLI_HELP_H_
#define GRADGATE_CLIENT_CLI_HELP_H_

#include <CLI/CLI.hpp>
#include <string>

namespace gradgate::cli {

inline constexpr size_t kHelpColumns = 80;

// CLI11's own, with lines of kHelpColumns at most, and short names of values.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override;
  std::string make_subcommand(const CLI::App* sub) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_footer(const CLI::App* app) const override;
};

// What is wrong with a command line that `app` did not take, one line with the remedy.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_HELP_H_
