// Shell completion for gradgatectl, made from the parser itself. Pure; any thread.

#ifndef GRADGATE_CLIENT_CLI_COMPLETION_H_
#define GRADGATE_CLIENT_CLI_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace gradgate::cli {

inline constexpr char kBash[] = "bash", kZsh[] = "zsh", kFish[] = "fish";

// A script that the shell reads, which completes the commands of `app` and their options. An option whose value has the type
// name FILE or DIR gets names of files. `shell`: one of the three.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_COMPLETION_H_
