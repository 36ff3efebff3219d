#include "client/cli/doctor_view.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/format.h"
#include "client/cli/job_view.h"
#include "client/cli/wrap.h"

namespace gradgate::cli {
namespace {

constexpr size_t kIndent = 10;

// `text` behind what `line` begins with, broken between words; further lines are indented.
std::string Wrapped(std::string line, absl::string_view text, size_t indent, size_t columns) {
  std::string lines;
  bool empty = true;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!empty && Width(line) + 1 + Width(word) > columns) {
      absl::StrAppend(&lines, line, "\n");
      line = std::string(indent, ' ');
      empty = true;
    }
    absl::StrAppend(&line, empty ? "" : " ", word);
    empty = false;
  }
  return absl::StrCat(lines, line, "\n");
}

std::string VerdictText(const v1::Verdict& verdict, size_t columns) {
  std::string head = SeverityWord(verdict.severity());
  head.resize(std::max(head.size() + 1, kIndent), ' ');
  std::string text =
      Wrapped(head, absl::StrCat(Printable(verdict.headline()), "  [", VerdictWord(verdict.kind()), "]"), kIndent, columns);
  const std::string margin(kIndent, ' ');
  for (const std::string& line : verdict.evidence()) text += Wrapped(margin + "- ", Printable(line), kIndent + 2, columns);
  for (const std::string& line : verdict.advice()) text += Wrapped(margin + "> ", Printable(line), kIndent + 2, columns);
  return text;
}

// Who was asked, where that is more than the one that answers, or is odd.
std::string NodesText(const v1::DiagnoseResponse& response, size_t columns) {
  std::string text;
  int answered = 0;
  for (const v1::NodeAnswer& node : response.nodes()) {
    answered += node.answered() ? 1 : 0;
    if (node.note().empty()) continue;
    const std::string name = node.node_name().empty() ? "" : absl::StrCat(Printable(node.node_name()), ": ");
    text += Wrapped("note      ", absl::StrCat(name, Printable(node.note())), kIndent, columns);
  }
  if (response.nodes_size() < 2) return text;
  return absl::StrCat("nodes     ", answered, " of ", response.nodes_size(), " answered\n", text);
}

}  // namespace

const char* SeverityWord(v1::Severity severity) {
  switch (severity) {
    case v1::SEVERITY_OK:
      return "OK";
    case v1::SEVERITY_NOTICE:
      return "NOTICE";
    case v1::SEVERITY_WARNING:
      return "WARNING";
    case v1::SEVERITY_CRITICAL:
      return "CRITICAL";
    default:
      return "?";
  }
}

std::string VerdictWord(v1::VerdictKind kind) {
  constexpr absl::string_view kPrefix = "VERDICT_KIND_";
  const std::string& name = v1::VerdictKind_Name(kind);
  if (name.size() <= kPrefix.size()) return absl::StrCat(static_cast<int>(kind));
  return absl::AsciiStrToLower(name.substr(kPrefix.size()));
}

std::string DoctorView(const v1::DiagnoseResponse& response, absl::Time now, size_t columns) {
  std::string text = Wrapped("", absl::StripSuffix(JobHeadLine(response.job(), now), "\n"), kIndent, columns);
  text += NodesText(response, columns);
  for (const v1::Verdict& verdict : response.verdicts()) absl::StrAppend(&text, "\n", VerdictText(verdict, columns));
  return text;
}

bool HasTrouble(const v1::DiagnoseResponse& response) {
  return std::any_of(response.verdicts().begin(), response.verdicts().end(),
                     [](const v1::Verdict& verdict) { return verdict.severity() > v1::SEVERITY_NOTICE; });
}

}  // namespace gradgate::cli
