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

using Strings = std::vector<std::string>;

struct Word {
  std::string text, about;
  bool option = false, takes_value = false, takes_file = false;
  Strings values = {};
};

// A command, or the program itself.
struct Node {
  std::string path;  // "policy set"; empty: the program
  std::vector<Word> words;
  Strings values = {};   // of its last positional
  size_t values_at = 0;  // how many positionals stand before that
};

// What stands between braces in a type's name: "TEXT:{bash,zsh,fish}" of CLI::IsMember, "MODE:{window,…}" of ours.
Strings ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}', begin);
  if (end == std::string::npos) return {};
  return absl::StrSplit(type.substr(begin + 1, end - begin - 1), ',');
}

std::vector<Word> WordsOf(const CLI::App& app) {
  std::vector<Word> words;
  for (const CLI::App* sub : app.get_subcommands({})) words.push_back({sub->get_name(), sub->get_description()});
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool file = absl::StrContains(type, "FILE") || absl::StrContains(type, "DIR");
    for (const std::string& name : option->get_lnames()) {
      words.push_back(
          {"--" + name, option->get_description(), true, option->get_items_expected_min() > 0, file, ValuesOf(*option)});
    }
  }
  return words;
}

Node MakeNode(const CLI::App& app, const std::string& path) {
  Node node{path, WordsOf(app)};
  size_t positionals = 0;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    node.values = ValuesOf(*option);
    node.values_at = positionals++;
  }
  return node;
}

// Options of the program may stand behind a command; those of "policy" are none but --help.
void Collect(const CLI::App& app, const std::string& path, const std::vector<Word>& globals, std::vector<Node>* nodes) {
  Node node = MakeNode(app, path);
  for (const Word& word : globals) {
    if (word.text != "--help") node.words.push_back(word);
  }
  nodes->push_back(std::move(node));
  for (const CLI::App* sub : app.get_subcommands({})) Collect(*sub, absl::StrCat(path, " ", sub->get_name()), globals, nodes);
}

std::vector<Node> NodesOf(const CLI::App& app) {
  std::vector<Node> nodes = {MakeNode(app, "")};
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
  Strings names;
  for (const Node& node : nodes) {
    for (const Word& word : node.words) {
      if (word.option && take(word) && std::find(names.begin(), names.end(), word.text) == names.end())
        names.push_back(word.text);
    }
  }
  return names.empty() ? "''" : absl::StrJoin(names, " | ");
}

// Finds out which command stands before the cursor, and how many words behind it that are neither options nor their values; the
// same in bash and zsh. `word` and `former` are the shell's names of a word and of the one before it.
std::string CommandCases(const std::vector<Node>& nodes, absl::string_view word, absl::string_view former) {
  Strings paths;
  for (const Node& node : nodes) {
    if (!node.path.empty()) paths.push_back(Quoted(node.path));
  }
  return absl::StrCat("    case \"", former, "\" in\n      '=' | ",
                      Options(nodes, [](const Word& one) { return one.takes_value; }),
                      ") continue ;;\n    esac\n    case \"${command:+$command }", word, "\" in\n      ",
                      absl::StrJoin(paths, " | "), ") command=\"${command:+$command }", word,
                      "\" given=0 ;;\n      -* | *' -'*) ;;\n", "      *) given=$((given + 1)) ;;\n    esac\n");
}

// `act` with the values of each option that has some, behind its name and its command: options of one name may differ.
template <typename Act>
std::string ValueCases(const std::vector<Node>& nodes, Act act) {
  std::string text;
  for (const Node& node : nodes) {
    for (const Word& word : node.words) {
      if (word.values.empty()) continue;
      absl::StrAppend(&text, "    ", Quoted(absl::StrCat(node.path, " ", word.text)), ") ", act(word.values), " ;;\n");
    }
  }
  return text;
}

// bash breaks words at "=": what stands before it is `cut` from the candidates, which begin with it, and is the option before.
constexpr char kBashBegin[] = R"(_gradgatectl() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} cut='' command='' words='' given=0 i
  if [[ $current == '=' ]]; then
    cut=$before= current=
  elif [[ $before == '=' && $COMP_CWORD -gt 1 ]]; then
    cut=${COMP_WORDS[COMP_CWORD - 2]}= before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
)";
constexpr char kBashEnd[] = R"(  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cut$current")
  COMPREPLY=("${COMPREPLY[@]#"$cut"}")
  [[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace 2>/dev/null || :
}
complete -o default -F _gradgatectl gradgatectl
)";

std::string Bash(const std::vector<Node>& nodes) {
  std::string text = absl::StrCat(
      kBashBegin, CommandCases(nodes, "${COMP_WORDS[i]}", "${COMP_WORDS[i - 1]}"), "  done\n  case \"$command $before\" in\n",
      ValueCases(nodes,
                 [](const Strings& values) {
                   return absl::StrCat("mapfile -t COMPREPLY < <(compgen -W ", Quoted(absl::StrJoin(values, " ")),
                                       " -- \"$current\"); return");
                 }),
      "  esac\n  case $before in\n    ", Options(nodes, [](const Word& word) { return word.takes_file; }),
      ") compopt -o filenames 2>/dev/null || :; mapfile -t COMPREPLY < <(compgen -f -- \"$current\"); return ;;\n    ",
      Options(nodes, [](const Word& word) { return word.takes_value && !word.takes_file; }),
      ") return ;;\n  esac\n  case $command in\n");
  for (const Node& node : nodes) {
    const auto only_text = [](std::string* out, const Word& word) { out->append(word.text); };
    absl::StrAppend(&text, "    ", Quoted(node.path), ") words='", absl::StrJoin(node.words, " ", only_text), "'");
    if (!node.values.empty()) {
      absl::StrAppend(&text, "; ((given < ", node.values_at, ")) || words+=", Quoted(" " + absl::StrJoin(node.values, " ")));
    }
    absl::StrAppend(&text, " ;;\n");
  }
  return absl::StrCat(text, kBashEnd);
}

std::string Zsh(const std::vector<Node>& nodes) {
  std::string text = absl::StrCat(
      "#compdef gradgatectl\n_gradgatectl() {\n  local command='' word former='' given=0\n  local -a candidates values\n"
      "  for word in ${words[2,CURRENT-1]}; do\n    local last=$former\n    former=$word\n",
      CommandCases(nodes, "$word", "$last"), "  done\n  case \"$command ${words[CURRENT-1]}\" in\n",
      ValueCases(nodes,
                 [](const Strings& values) { return absl::StrCat("compadd -- ", absl::StrJoin(values, " "), "; return"); }),
      "  esac\n  case ${words[CURRENT-1]} in\n    ", Options(nodes, [](const Word& word) { return word.takes_file; }),
      ") _files; return ;;\n    ", Options(nodes, [](const Word& word) { return word.takes_value && !word.takes_file; }),
      ") return ;;\n  esac\n  case $command in\n");
  for (const Node& node : nodes) {
    absl::StrAppend(&text, "    ", Quoted(node.path), ") candidates=(");
    for (const Word& word : node.words) absl::StrAppend(&text, "\n      ", Quoted(absl::StrCat(word.text, ":", word.about)));
    absl::StrAppend(&text, ")");
    if (!node.values.empty()) {
      absl::StrAppend(&text, "\n      ((given < ", node.values_at, ")) || values=(", absl::StrJoin(node.values, " "), ")");
    }
    absl::StrAppend(&text, " ;;\n");
  }
  return absl::StrCat(text, "  esac\n  ((${#values})) && compadd -- $values\n  _describe gradgatectl candidates\n}\n",
                      "_gradgatectl \"$@\"\n");
}

std::string Fish(const std::vector<Node>& nodes) {
  std::string text = "complete -c gradgatectl -f\n";
  for (const Node& node : nodes) {
    std::string when = "__fish_use_subcommand";
    if (!node.path.empty()) {
      const Strings parts = absl::StrSplit(node.path, ' ');
      when = absl::StrCat("__fish_seen_subcommand_from ", absl::StrJoin(parts, "; and __fish_seen_subcommand_from "));
    }
    const std::string begin = absl::StrCat("complete -c gradgatectl -n ", Quoted(when));
    for (const Word& word : node.words) {
      std::string what =
          !word.option ? absl::StrCat("-a ", word.text) : absl::StrCat("-l ", absl::StripPrefix(word.text, "--"));
      if (word.takes_value) absl::StrAppend(&what, " -r", word.takes_file ? " -F" : "");
      if (!word.values.empty()) absl::StrAppend(&what, " -a ", Quoted(absl::StrJoin(word.values, " ")));
      absl::StrAppend(&text, begin, " ", what, " -d ", Quoted(word.about), "\n");
    }
    if (!node.values.empty()) absl::StrAppend(&text, begin, " -a ", Quoted(absl::StrJoin(node.values, " ")), "\n");
  }
  return text;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  const std::vector<Node> nodes = NodesOf(app);
  return shell == kBash ? Bash(nodes) : shell == kZsh ? Zsh(nodes) : Fish(nodes);
}

}  // namespace gradgate::cli
