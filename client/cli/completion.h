// Shell completion for gradgatectl, made from the parser itself. Pure; any thread.

#ifndef GRADGATE_CLIENT_CLI_COMPLETION_H_
#define GRADGATE_CLIENT_CLI_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace gradgate::cli {

inline constexpr char kBash[] = "bash", kZsh[] = "zsh", kFish[] = "fish";

// A script that the shell reads, which completes the commands of `app`, their options and values that are known beforehand: an
// option or a positional whose type name has {a,b,c} in it, as CLI::IsMember makes it, gets these; one of type FILE or DIR
// names of files. Nobody is asked. `shell`: one of the three.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_COMPLETION_H_
