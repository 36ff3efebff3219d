// The stats service's answers to requests of any bytes, over a node with a fixed set of jobs, page tokens included: those of
// answers before, changed ones, and ones with a good check and a bad content.

#include <optional>

#include "daemon/rpc/convert.h"
#include "daemon/rpc/stats_answers.h"
#include "tests/fuzz/answers.h"
#include "tests/fuzz/fixed_node.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

constexpr int kMaxCalls = 6;

enum Call : unsigned { kListJobs, kGetJobStats, kListWindows, kWatchWindows, kCallCount };
enum Token : unsigned { kAsGiven, kFormer, kFormerChanged, kForged, kTokenCount };

class Caller {
 public:
  explicit Caller(Registry& registry) : registry_(registry) {}

  void Run(Input& in) {
    for (int i = 0; i < kMaxCalls && !in.empty(); ++i) {
      const uint8_t call = in.Byte();
      const auto token = static_cast<Token>((call / kCallCount) % kTokenCount);
      switch (call % kCallCount) {
        case kListJobs:
          ListJobs(token, in);
          break;
        case kGetJobStats:
          GetJobStats(in);
          break;
        case kListWindows:
          ListWindows(token, in);
          break;
        case kWatchWindows:
          WatchWindows(in);
          break;
      }
    }
  }

 private:
  // A request of any bytes; what does not parse counts as far as it does.
  template <typename Request>
  static Request Read(Input& in) {
    Request request;
    (void)request.ParsePartialFromString(in.Text());
    return request;
  }

  template <typename Request>
  void SetToken(Token token, Input& in, Request& request) {
    if (token == kAsGiven || token == kTokenCount) return;
    std::string text = former_;
    if (token == kFormerChanged && !text.empty()) text[in.Below(text.size())] = static_cast<char>(in.Byte());
    if (token == kForged) {
      PageStart start;
      start.list = in.Byte();
      start.first = in.Number<int64_t>();
      start.second = in.Number<uint64_t>();
      text = tokens_.Make(start);
    }
    request.set_page_token(text);
  }

  // Refusals have one of the codes that the service declares, and text that gRPC can carry.
  static void CheckRefusal(const absl::Status& status) {
    FUZZ_CHECK(absl::IsInvalidArgument(status) || absl::IsNotFound(status), status.ToString());
    const grpc::Status told = ToGrpc(status);
    FUZZ_CHECK(static_cast<int>(told.error_code()) == static_cast<int>(status.code()), status.ToString());
    FUZZ_CHECK(!told.error_message().empty(), "a refusal without a message");
  }

  void ListJobs(Token token, Input& in) {
    auto request = Read<v1::ListJobsRequest>(in);
    SetToken(token, in, request);
    const auto response = AnswerListJobs(request, tokens_, registry_);
    if (!response.ok()) return CheckRefusal(response.status());
    FUZZ_CHECK(request.page_size() >= 0, request.ShortDebugString());
    if (request.page_size() > 0) FUZZ_CHECK(response->jobs_size() <= request.page_size(), request.ShortDebugString());
    CheckMessage(*response, false);
    former_ = response->next_page_token();
  }

  void GetJobStats(Input& in) {
    const auto response = AnswerGetJobStats(Read<v1::GetJobStatsRequest>(in), registry_);
    if (!response.ok()) return CheckRefusal(response.status());
    CheckMessage(*response, false);
  }

  void ListWindows(Token token, Input& in) {
    auto request = Read<v1::ListWindowsRequest>(in);
    SetToken(token, in, request);
    const auto response = AnswerListWindows(request, tokens_, registry_);
    if (!response.ok()) return CheckRefusal(response.status());
    if (request.page_size() > 0) FUZZ_CHECK(response->windows_size() <= request.page_size(), request.ShortDebugString());
    for (int i = 1; i < response->windows_size(); ++i) {
      const int64_t before = response->windows(i - 1).window_index(), after = response->windows(i).window_index();
      FUZZ_CHECK(request.newest_first() ? before > after : before < after, "windows out of order");
    }
    CheckMessage(*response, false);
    former_ = response->next_page_token();
  }

  // What the handler does, without a stream to write to.
  void WatchWindows(Input& in) {
    const auto request = Read<v1::WatchWindowsRequest>(in);
    std::optional<uint64_t> first;
    if (request.has_first_window_index() && request.first_window_index() >= 0) {
      first = static_cast<uint64_t>(request.first_window_index());
    }
    auto position = registry_.StartWatch(request.job(), first);
    if (!position.ok()) return CheckRefusal(position.status());
    for (int i = 0; i < 8; ++i) {
      const auto step = registry_.NextForWatch(*position);
      FUZZ_CHECK(step.ok(), step.status().ToString());
      if (!step->window) break;
      CheckMessage(ToMessage(*step->window), false);
    }
  }

  Registry& registry_;
  const PageTokens tokens_{7};
  std::string former_;
};

}  // namespace

std::vector<std::string> Seeds() {
  const auto call = [](unsigned which, unsigned token) { return which + kCallCount * token; };
  v1::ListJobsRequest jobs;
  jobs.set_page_size(2);
  v1::GetJobStatsRequest stats;
  stats.set_job("job");
  v1::GetJobStatsRequest by_run;
  by_run.set_job("111111");
  v1::ListWindowsRequest windows;
  windows.set_job("job");
  windows.set_page_size(2);
  v1::ListWindowsRequest newest = windows;
  newest.set_newest_first(true);
  v1::WatchWindowsRequest watch;
  watch.set_job("job-5");
  watch.set_first_window_index(3);
  SeedBuilder all;
  all.Byte(call(kListJobs, kAsGiven)).Text(jobs.SerializeAsString());
  all.Byte(call(kListJobs, kFormer)).Text(jobs.SerializeAsString());
  all.Byte(call(kGetJobStats, kAsGiven)).Text(stats.SerializeAsString());
  all.Byte(call(kListWindows, kAsGiven)).Text(windows.SerializeAsString());
  all.Byte(call(kListWindows, kFormerChanged)).Text(windows.SerializeAsString()).Byte(3).Byte('A');
  all.Byte(call(kWatchWindows, kAsGiven)).Text(watch.SerializeAsString());
  SeedBuilder pages;
  pages.Byte(call(kListWindows, kAsGiven)).Text(newest.SerializeAsString());
  pages.Byte(call(kListWindows, kFormer)).Text(newest.SerializeAsString());
  SeedBuilder forged;
  for (const uint64_t second : {uint64_t{0}, uint64_t{INT64_MAX}, UINT64_MAX}) {
    forged.Byte(call(kListJobs, kForged)).Text("").Byte(0).Number(int64_t{INT64_MIN}).Number(second);
    forged.Byte(call(kListWindows, kForged)).Text(windows.SerializeAsString()).Byte(2).Number(int64_t{-1}).Number(second);
  }
  SeedBuilder run;
  run.Byte(call(kGetJobStats, kAsGiven)).Text(by_run.SerializeAsString());
  return {all, pages, forged, run};
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const node = new gradgate::fuzz::FixedNode;
  gradgate::fuzz::Input in(data, size);
  gradgate::fuzz::Caller(node->registry).Run(in);
  return 0;
}
