#include "client/cli/completion.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gradgate::cli {
namespace {

struct Word {
  std::string text, about;
  bool option = false, takes_value = false, takes_file = false;
};

// A command, or the program itself.
struct Node {
  std::string path;  // "policy set"; empty: the program
  std::vector<Word> words;
};

std::vector<Word> WordsOf(const CLI::App& app) {
  std::vector<Word> words;
  for (const CLI::App* sub : app.get_subcommands({})) words.push_back({sub->get_name(), sub->get_description()});
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool file = absl::StrContains(type, "FILE") || absl::StrContains(type, "DIR");
    for (const std::string& name : option->get_lnames()) {
      words.push_back({"--" + name, option->get_description(), true, option->get_items_expected_min() > 0, file});
    }
  }
  return words;
}

// Options of the program may stand behind a command; those of "policy" are none but --help.
void Collect(const CLI::App& app, const std::string& path, const std::vector<Word>& globals, std::vector<Node>* nodes) {
  Node node{path, WordsOf(app)};
  for (const Word& word : globals) {
    if (word.text != "--help") node.words.push_back(word);
  }
  nodes->push_back(node);
  for (const CLI::App* sub : app.get_subcommands({})) {
    Collect(*sub, path.empty() ? sub->get_name() : absl::StrCat(path, " ", sub->get_name()), globals, nodes);
  }
}

std::vector<Node> NodesOf(const CLI::App& app) {
  std::vector<Node> nodes = {{"", WordsOf(app)}};
  std::vector<Word> globals;
  for (const Word& word : nodes[0].words) {
    if (word.option) globals.push_back(word);
  }
  for (const CLI::App* sub : app.get_subcommands({})) Collect(*sub, sub->get_name(), globals, &nodes);
  return nodes;
}

std::string Quoted(absl::string_view text) { return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'"); }

// "'a' | 'b'" of all options for which `take`; "''" where there are none.
template <typename Take>
std::string Options(const std::vector<Node>& nodes, Take take) {
  std::vector<std::string> names;
  for (const Node& node : nodes) {
    for (const Word& word : node.words) {
      if (word.option && take(word) && std::find(names.begin(), names.end(), word.text) == names.end())
        names.push_back(word.text);
    }
  }
  return names.empty() ? "''" : absl::StrJoin(names, " | ");
}

// Finds out which command stands before the cursor; the same in bash and zsh.
std::string CommandCases(const std::vector<Node>& nodes, absl::string_view word) {
  std::vector<std::string> paths;
  for (const Node& node : nodes) {
    if (!node.path.empty()) paths.push_back(Quoted(node.path));
  }
  return absl::StrCat("    case \"${command:+$command }", word, "\" in\n      ", absl::StrJoin(paths, " | "),
                      ") command=\"${command:+$command }", word, "\" ;;\n    esac\n");
}

std::string Bash(const std::vector<Node>& nodes) {
  std::string text = absl::StrCat(
      "_gradgatectl() {\n  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' words='' i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n",
      CommandCases(nodes, "${COMP_WORDS[i]}"), "  done\n  case $before in\n    ",
      Options(nodes, [](const Word& word) { return word.takes_file; }),
      ") compopt -o filenames 2>/dev/null || :; mapfile -t COMPREPLY < <(compgen -f -- \"$current\"); return ;;\n    ",
      Options(nodes, [](const Word& word) { return word.takes_value && !word.takes_file; }),
      ") return ;;\n  esac\n  case $command in\n");
  for (const Node& node : nodes) {
    const auto only_text = [](std::string* out, const Word& word) { out->append(word.text); };
    absl::StrAppend(&text, "    ", Quoted(node.path), ") words='", absl::StrJoin(node.words, " ", only_text), "' ;;\n");
  }
  return absl::StrCat(text,
                      "  esac\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n}\n"
                      "complete -o default -F _gradgatectl gradgatectl\n");
}

std::string Zsh(const std::vector<Node>& nodes) {
  std::string text = absl::StrCat(
      "#compdef gradgatectl\n_gradgatectl() {\n  local command='' word\n  local -a candidates\n"
      "  for word in ${words[2,CURRENT-1]}; do\n",
      CommandCases(nodes, "$word"), "  done\n  case ${words[CURRENT-1]} in\n    ",
      Options(nodes, [](const Word& word) { return word.takes_file; }), ") _files; return ;;\n    ",
      Options(nodes, [](const Word& word) { return word.takes_value && !word.takes_file; }),
      ") return ;;\n  esac\n  case $command in\n");
  for (const Node& node : nodes) {
    absl::StrAppend(&text, "    ", Quoted(node.path), ") candidates=(");
    for (const Word& word : node.words) absl::StrAppend(&text, "\n      ", Quoted(absl::StrCat(word.text, ":", word.about)));
    absl::StrAppend(&text, ") ;;\n");
  }
  return absl::StrCat(text, "  esac\n  _describe gradgatectl candidates\n}\n_gradgatectl \"$@\"\n");
}

std::string Fish(const std::vector<Node>& nodes) {
  std::string text = "complete -c gradgatectl -f\n";
  for (const Node& node : nodes) {
    std::string when = "__fish_use_subcommand";
    if (!node.path.empty()) {
      const std::vector<std::string> parts = absl::StrSplit(node.path, ' ');
      when = absl::StrCat("__fish_seen_subcommand_from ", absl::StrJoin(parts, "; and __fish_seen_subcommand_from "));
    }
    for (const Word& word : node.words) {
      const std::string what = !word.option ? absl::StrCat("-a ", word.text)
                                            : absl::StrCat("-l ", absl::StripPrefix(word.text, "--"),
                                                           word.takes_value ? " -r" : "", word.takes_file ? " -F" : "");
      absl::StrAppend(&text, "complete -c gradgatectl -n ", Quoted(when), " ", what, " -d ", Quoted(word.about), "\n");
    }
  }
  return text;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  const std::vector<Node> nodes = NodesOf(app);
  return shell == kBash ? Bash(nodes) : shell == kZsh ? Zsh(nodes) : Fish(nodes);
}

}  // namespace gradgate::cli
