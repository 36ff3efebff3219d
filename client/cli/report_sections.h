// The parts of a report, each as HTML with its own heading. Pure functions; any thread.

#ifndef GRADGATE_CLIENT_CLI_REPORT_SECTIONS_H_
#define GRADGATE_CLIENT_CLI_REPORT_SECTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "client/cli/report_data.h"

namespace gradgate::cli {

// What of a job with many ranks is drawn: the worst and the best; more than that, nobody can read.
inline constexpr size_t kMostRanksDrawn = 24;
inline constexpr size_t kBestRanksDrawn = 6;
inline constexpr size_t kMostColumns = 120;
inline constexpr size_t kMostWindowsOnLine = 48;

// The headline: reductions per optimizer step against the intended ones, and the other figures of the run.
std::string ReductionsSection(const ReportAnswers& answers);

// Over windows: reductions against intended, and own against exposed time.
std::string WindowsSection(const ReportAnswers& answers);

// The latest windows of each rank on a line of time.
std::string TimelineSection(const ReportAnswers& answers);

// Who waits for whom: each rank's own and exposed time.
std::string RanksSection(const ReportAnswers& answers);

std::string BytesSection(const ReportAnswers& answers);
std::string DoctorSection(const ReportAnswers& answers);
std::string PlanSection(const ReportAnswers& answers);
std::string PolicySection(const ReportAnswers& answers);

// What could not be told, and why; says so where all is known.
std::string UnknownSection(const ReportAnswers& answers);

// The worst first, without the middle where there are too many; `left_out`: how many that are, after the first `worst`.
struct RankChoice {
  std::vector<RankReport> ranks;
  size_t worst = 0;
  size_t left_out = 0;
};
RankChoice ChooseRanks(const ReportAnswers& answers);

// "1.2 s", "340 ms", "12 µs"; "unknown".
std::string TimeText(std::optional<double> seconds);

// "31 %", "4.7 %"; "unknown".
std::string ShareText(std::optional<double> share);

// "4.0", "1.25": reductions of a step; "unknown".
std::string CountText(std::optional<double> count);

// The class of style.h.
const char* SeverityClass(v1::Severity severity);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_REPORT_SECTIONS_H_
