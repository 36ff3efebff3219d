#include "client/cli/doctor_view.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cli/format.h"
#include "client/cli/job_view.h"
#include "client/cli/node_view.h"
#include "client/cli/wrap.h"

namespace gradgate::cli {
namespace {

constexpr size_t kIndent = 10;

std::string VerdictText(const v1::Verdict& verdict, size_t width) {
  std::string head = SeverityWord(verdict.severity());
  head.resize(std::max(head.size() + 1, kIndent), ' ');
  const std::string headline = absl::StrCat(head, Printable(verdict.headline()), " [", VerdictWord(verdict.kind()), "]\n");
  const std::string margin(kIndent, ' ');
  std::string below;
  for (const std::string& line : verdict.evidence()) absl::StrAppend(&below, margin, "- ", Printable(line), "\n");
  for (const std::string& line : verdict.advice()) absl::StrAppend(&below, margin, "> ", Printable(line), "\n");
  return absl::StrCat(WrapLines(headline, width, kIndent), WrapLines(below, width));
}

// Who was asked, where that is more than the one that answers; and what is odd.
std::string NodesText(const v1::DiagnoseResponse& response) {
  const auto answered = std::count_if(response.nodes().begin(), response.nodes().end(),
                                      [](const v1::NodeAnswer& node) { return node.answered(); });
  const std::string count =
      response.nodes_size() < 2 ? "" : absl::StrCat("nodes     ", answered, " of ", response.nodes_size(), " answered\n");
  return absl::StrCat(count, NodeProblems(response.nodes(), RanksOf(response.job()) < response.job().world_size()));
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

std::string DoctorView(const v1::DiagnoseResponse& response, absl::Time now, size_t width) {
  std::string text = WrapLines(absl::StrCat(JobHeadLine(response.job(), now), NodesText(response)), width);
  for (const v1::Verdict& verdict : response.verdicts()) absl::StrAppend(&text, "\n", VerdictText(verdict, width));
  return text;
}

bool HasTrouble(const v1::DiagnoseResponse& response) {
  return std::any_of(response.verdicts().begin(), response.verdicts().end(),
                     [](const v1::Verdict& verdict) { return verdict.severity() > v1::SEVERITY_NOTICE; });
}

}  // namespace gradgate::cli
