#include "client/cli/top_source.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/diagnosis_client.h"
#include "client/sync_stats_client.h"

namespace gradgate::cli {
namespace {

constexpr absl::Duration kDoctorPause = absl::Seconds(4);  // it looks at many windows

// What is asked about each of: the selected one first.
std::vector<std::string> KeysToAsk(const std::vector<v1::Job>& jobs, const std::string& selected) {
  std::vector<std::string> keys;
  const auto add = [&](const v1::Job& job) {
    std::string key = TopKey(job);
    if (keys.size() < kMostTopJobs && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(std::move(key));
  };
  for (const v1::Job& job : jobs) {
    if (TopKey(job) == selected) add(job);
  }
  for (const v1::Job& job : jobs) {
    if (job.state() == v1::STATE_RUNNING) add(job);
  }
  for (const v1::Job& job : jobs) add(job);
  return keys;
}

void AskDoctor(const client::Connection& connection, const std::string& key, v1::Scope scope, client::Cancellation* cancel,
               TopRound* round) {
  v1::DiagnoseRequest request;
  request.set_job(key);
  request.set_scope(scope);
  round->diagnosed = key;
  round->diagnosis = client::Diagnose(connection, request, cancel);
}

}  // namespace

TopRound AskTopRound(const std::shared_ptr<const client::Connection>& connection, const TopQuestion& question,
                     const std::string& selected, bool diagnose, client::Cancellation* cancel) {
  const auto client = client::SyncStatsClient::Over(connection);
  TopRound round;
  std::vector<std::string> keys;
  if (question.job.empty()) {
    auto jobs = client->ListJobs(0, question.scope, cancel);
    round.status = jobs.status();
    if (!jobs.ok()) return round;
    round.jobs.assign(jobs->jobs().begin(), jobs->jobs().end());
    round.nodes.assign(jobs->nodes().begin(), jobs->nodes().end());
    keys = KeysToAsk(round.jobs, selected);
  } else {
    keys = {question.job};
  }
  for (const std::string& key : keys) {
    auto stats = client->GetJobStats(key, question.scope, cancel);
    if (absl::IsNotFound(stats.status()) && question.job.empty()) continue;  // forgotten meanwhile
    round.status = stats.status();
    if (!stats.ok()) return round;
    if (!question.job.empty()) {
      round.jobs = {stats->job()};
      round.nodes.assign(stats->nodes().begin(), stats->nodes().end());
    }
    const std::string of = TopKey(stats->job());
    round.stats.insert_or_assign(of, *std::move(stats));
  }
  round.at = absl::Now();
  if (diagnose && !round.stats.empty()) {
    const std::string key = question.job.empty() ? keys.front() : TopKey(round.jobs.front());
    AskDoctor(*connection, key, question.scope, cancel, &round);
  }
  return round;
}

TopSource::TopSource(std::shared_ptr<const client::Connection> connection, TopQuestion question, absl::Duration interval,
                     int ready_fd)
    : connection_(std::move(connection)), question_(std::move(question)), interval_(interval), ready_fd_(ready_fd) {
  thread_ = std::thread([this] { Run(); });
}

TopSource::~TopSource() {
  {
    const absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  cancellation_.Cancel();
  thread_.join();
}

void TopSource::Select(const std::string& key, bool at_once) {
  const absl::MutexLock lock(&mutex_);
  hurry_ = hurry_ || (at_once && key != selected_);
  selected_ = key;
}

std::optional<TopRound> TopSource::Take() {
  const absl::MutexLock lock(&mutex_);
  return std::exchange(round_, std::nullopt);
}

void TopSource::Run() {
  absl::Time doctor_due = absl::InfinitePast();
  std::string diagnosed;
  absl::Time next = absl::Now();
  do {
    std::string selected;
    {
      const absl::MutexLock lock(&mutex_);
      selected = selected_;
      hurry_ = false;
    }
    const absl::Time begin = absl::Now();
    const bool diagnose = begin >= doctor_due || selected != diagnosed;
    TopRound round = AskTopRound(connection_, question_, selected, diagnose, &cancellation_);
    if (diagnose && round.status.ok()) {
      doctor_due = begin + kDoctorPause;
      diagnosed = selected;
    }
    {
      const absl::MutexLock lock(&mutex_);
      round_ = std::move(round);
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(ready_fd_, &one, sizeof(one));
    next = std::max(next + interval_, absl::Now());  // rounds that were missed are not made up for
  } while (AwaitNext(next));
}

bool TopSource::AwaitNext(absl::Time at) {
  const absl::MutexLock lock(&mutex_);
  const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || hurry_; };
  mutex_.AwaitWithDeadline(absl::Condition(&due), at);
  return !stop_;
}

}  // namespace gradgate::cli
