// digits: a data-parallel trainer that links gradgate as a user's would. See README.md.

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/digits/launcher.h"
#include "examples/digits/options.h"
#include "examples/digits/report.h"
#include "examples/digits/trainer.h"
#include "gradgate/gradgate.hpp"

namespace {

namespace fs = std::filesystem;

// A directory that goes away with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (fs::temp_directory_path() / "digits-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a directory like " + name);
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string Rendezvous() const { return "file://" + (path_ / "rendezvous").string(); }
  std::string RankReport(uint32_t rank) const { return (path_ / ("report-" + std::to_string(rank) + ".json")).string(); }

 private:
  fs::path path_;
};

// Trains as one rank; what goes wrong is one line on stderr.
int RunRank(const digits::Options& options, const std::string& rank_report) {
  const uint32_t rank = options.rank.value_or(0);
  try {
    const digits::RankReport report = digits::Train(options);
    if (!rank_report.empty()) digits::WriteRankReport(rank_report, report);
    std::printf("rank %u  parameters %016" PRIx64 "  held-out %.2f %%  steps %" PRIu64 "  reductions %" PRIu64
                "  suppressed %" PRIu64 "\n",
                rank, report.parameter_hash, 100 * report.held_out_accuracy, report.stats.steps, report.stats.reductions_issued,
                report.stats.reductions_suppressed);
    return 0;
  } catch (const gradgate::Error& error) {
    std::fprintf(stderr, "digits: rank %u: %s: %s\n", rank, error.code_name(), error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digits: rank %u: %s\n", rank, error.what());
  }
  return 1;
}

int Main(const digits::Options& options) {
  const TemporaryDirectory directory;
  const uint32_t ranks = options.rank ? 1 : options.ranks;
  std::vector<std::string> rank_reports;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    rank_reports.push_back(options.report.empty() ? "" : directory.RankReport(rank));

  int status = 0;
  if (ranks == 1) {
    status = RunRank(options, rank_reports[0]);
  } else {
    // Ranks that wait for a dead one say so by the deadline; then they are not waited for.
    const auto grace = std::chrono::seconds(static_cast<int64_t>(options.deadline_seconds) + 5);
    status = digits::Launch(ranks, grace, [&](uint32_t rank) {
      digits::Options mine = options;
      mine.rank = rank;
      mine.world_size = ranks;
      mine.rendezvous = directory.Rendezvous();
      return RunRank(mine, rank_reports[rank]);
    });
  }
  if (status == 0 && !options.report.empty()) digits::MergeReports(options.report, options, rank_reports);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  int status = 0;
  const std::optional<digits::Options> options = digits::ParseOptions(argc, argv, &status);
  if (!options) return status;
  try {
    return Main(*options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digits: %s\n", error.what());
    return 1;
  }
}
