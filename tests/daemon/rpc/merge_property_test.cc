// However a job's ranks are spread over nodes, the merged answer is that of one node with all of them.

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/node/clock.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/merge_jobs.h"
#include "daemon/rpc/merge_windows.h"
#include "daemon/rpc/stats_answers.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::FakeIdentity;
using testing::FakePage;

class StandingClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixSeconds(1'700'000'000); }
};

class Spread {
 public:
  explicit Spread(uint32_t seed) : random_(seed) {
    const int nodes = Below(5) + 1;
    all_ = std::make_unique<Registry>(RegistryOptions{}, &clock_);
    for (int i = 0; i < nodes; ++i) nodes_.push_back(std::make_unique<Registry>(RegistryOptions{}, &clock_));
    const int jobs = Below(4) + 1;
    for (int j = 0; j < jobs; ++j) AddJob(j);
  }

  Registry& all() { return *all_; }
  std::vector<std::unique_ptr<Registry>>& nodes() { return nodes_; }
  int Below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

 private:
  void AddJob(int number) {
    const auto world = static_cast<uint32_t>(Below(9) + 1);
    for (uint32_t rank = 0; rank < world; ++rank) {
      if (Below(6) == 0 && rank + 1 < world) continue;  // not there yet
      pages_.push_back(std::make_unique<FakePage>(FakeIdentity{.job_name = absl::StrCat("job", number),
                                                               .run_id_bytes = std::string(16, static_cast<char>('a' + number)),
                                                               .attempt = static_cast<uint32_t>(number % 2),
                                                               .rank = rank,
                                                               .world_size = world,
                                                               .wall_time_ns = 1'700'000'000'000'000'000 + Below(3)}));
      FakePage& page = *pages_.back();
      FillCounts(page.page());
      for (int w = Below(12); w > 0; --w) page.CloseWindow();
      const auto ending = static_cast<Ending>(Below(3));
      const bool ends = Below(3) == 0;
      for (Registry* registry : {all_.get(), nodes_[Below(static_cast<int>(nodes_.size()))].get()}) {
        const auto registration = registry->Register(1000, page.Map());
        ASSERT_TRUE(registration.ok()) << registration.status();
        if (ends) registry->End(registration->connection, ending);
      }
    }
  }

  void FillCounts(page::StatsPage& page) {
    page.identity.accumulate = static_cast<uint32_t>(Below(8) + 1);
    page.identity.sync_mode = static_cast<uint8_t>(Below(5));
    page.identity.enforcement = static_cast<uint8_t>(Below(4));
    page.totals.micro_step_count.store(random_());
    page.totals.step_count.store(random_());
    page.totals.exposed_ns.store(random_() * uint64_t{1000});
    page.totals.window_ns.store(uint64_t{random_()} << 10);
    page.totals.item_count.store(Below(3) == 0 ? INT64_MAX - 1 : random_());
    page.roles[Below(3)].issued_count.store(random_());
    page::CollectiveCell& cell = page.cells[Below(3)][Below(4)];
    cell.issued_count[Below(3)].store(random_());
    cell.bytes[Below(3)].store(random_());
    cell.duration_ns.store(random_() * uint64_t{100});
  }

  std::mt19937 random_;
  StandingClock clock_;
  std::unique_ptr<Registry> all_;
  std::vector<std::unique_ptr<Registry>> nodes_;
  std::vector<std::unique_ptr<FakePage>> pages_;
};

template <typename Response>
void AddTo(Parts<Response>& parts, absl::StatusOr<Response> answer) {
  v1::NodeAnswer& node = parts.nodes.emplace_back();
  node.set_node_name(absl::StrCat("n", parts.nodes.size()));
  node.set_answered(true);
  if (answer.ok()) parts.parts.push_back({parts.nodes.size() - 1, *std::move(answer)});
}

std::string Difference(const google::protobuf::Message& one, const google::protobuf::Message& merged) {
  std::string report;
  MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  return differencer.Compare(one, merged) ? "" : report;
}

constexpr uint32_t kSeeds = 120;

TEST(MergeProperty, JobStatsAreThoseOfOneNode) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Spread spread(seed);
    for (const JobView& job : spread.all().ListJobs()) {
      v1::GetJobStatsRequest request;
      request.set_job(job.run_id);
      const auto one = AnswerGetJobStats(request, spread.all());
      ASSERT_TRUE(one.ok());
      Parts<v1::GetJobStatsResponse> parts;
      for (auto& node : spread.nodes()) AddTo(parts, AnswerGetJobStats(request, *node));
      for (const auto& part : parts.parts) ASSERT_TRUE(CheckJobStats(part.answer).ok()) << CheckJobStats(part.answer);
      auto merged = MergeJobStats(std::move(parts));
      auto expected = *one;
      for (v1::RankStats& rank : *merged.mutable_ranks()) {
        EXPECT_NE(rank.node_name(), "");
        rank.clear_node_name();
        rank.clear_slot();
      }
      for (v1::RankStats& rank : *expected.mutable_ranks()) rank.clear_slot();
      EXPECT_EQ(merged.nodes_size(), static_cast<int>(spread.nodes().size()));
      merged.clear_nodes();
      ASSERT_EQ(Difference(expected, merged), "");
    }
  }
}

TEST(MergeProperty, JobsAreThoseOfOneNodeOnEveryPage) {
  const PageTokens tokens{5};
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Spread spread(seed);
    std::map<std::string, v1::Job> expected;
    for (const JobView& job : spread.all().ListJobs()) expected[job.run_id] = ToMessage(job);
    v1::ListJobsRequest request;
    request.set_page_size(spread.Below(3) + 1);
    int64_t former_start = INT64_MAX;
    do {
      Parts<v1::ListJobsResponse> parts;
      v1::ListJobsRequest whole;
      for (auto& node : spread.nodes()) AddTo(parts, AnswerListJobs(whole, tokens, *node));
      const auto page = MergeJobLists(std::move(parts), request, tokens);
      ASSERT_TRUE(page.ok()) << page.status();
      ASSERT_LE(page->jobs_size(), request.page_size());
      for (const v1::Job& job : page->jobs()) {
        ASSERT_TRUE(expected.contains(job.run_id())) << "twice, or not there";
        ASSERT_EQ(Difference(expected[job.run_id()], job), "");
        expected.erase(job.run_id());
        const int64_t start = job.start_time().seconds() * 1'000'000'000 + job.start_time().nanos();
        EXPECT_LE(start, former_start);
        former_start = start;
      }
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    EXPECT_TRUE(expected.empty());
  }
}

TEST(MergeProperty, WindowsAreThoseOfOneNodeOnEveryPage) {
  const PageTokens tokens{5};
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Spread spread(seed);
    for (const JobView& job : spread.all().ListJobs()) {
      v1::ListWindowsRequest request;
      request.set_job(job.run_id);
      request.set_newest_first(spread.Below(2) == 0);
      request.set_page_size(1000);
      if (spread.Below(3) == 0) request.set_from_window_index(spread.Below(12));
      const auto one = AnswerListWindows(request, tokens, spread.all());
      ASSERT_TRUE(one.ok());
      request.set_page_size(spread.Below(5) + 1);
      v1::ListWindowsResponse together;
      do {
        const auto asked = PartOfWindowsPage(request, tokens);
        ASSERT_TRUE(asked.ok()) << asked.status();
        Parts<v1::ListWindowsResponse> parts;
        for (auto& node : spread.nodes()) {
          v1::ListWindowsRequest of_node = *asked;  // a node may give less than it is asked for
          if (spread.Below(4) == 0) of_node.set_page_size(spread.Below(static_cast<int>(asked->page_size())) + 1);
          AddTo(parts, AnswerListWindows(of_node, tokens, *node));
        }
        for (const auto& part : parts.parts) {
          ASSERT_TRUE(CheckWindows(part.answer, *asked).ok()) << CheckWindows(part.answer, *asked);
        }
        const auto page = MergeWindows(std::move(parts), request, tokens);
        ASSERT_TRUE(page.ok()) << page.status();
        ASSERT_LE(page->windows_size(), request.page_size());
        ASSERT_TRUE(page->windows_size() > 0 || page->next_page_token().empty());
        together.mutable_windows()->MergeFrom(page->windows());
        *together.mutable_job() = page->job();
        together.set_closed_below_index(page->closed_below_index());
        together.set_closed_by_running_index(page->closed_by_running_index());
        request.set_page_token(page->next_page_token());
      } while (!request.page_token().empty());
      ASSERT_EQ(Difference(*one, together), "");
    }
  }
}

}  // namespace
}  // namespace gradgate
