#include "tests/daemon/witness.h"

#include <chrono>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "shim/link/link.h"
#include "shim/stats/recorder.h"

namespace gradgate::testing {
namespace {

constexpr std::chrono::milliseconds kPace(10);
constexpr std::chrono::seconds kDeadline(20);
constexpr uint32_t kMicroSteps = 4;
constexpr uint64_t kBytes = 1000;

}  // namespace

Witness::Witness(const std::string& directory) {
  RecorderIdentity identity;
  identity.job_name = kWitnessJob;
  std::memset(identity.run_id, 'w', sizeof(identity.run_id));
  identity.accumulate = kMicroSteps;
  const Status made = Recorder::Create(identity, &recorder_);
  EXPECT_TRUE(made.ok()) << made.message();
  link_ = std::make_unique<Link>(std::vector<std::string>{directory}, recorder_->fd(), &recorder_->page(), nullptr, nullptr);
  thread_ = std::thread([this] { Train(); });
}

Witness::~Witness() { Quit(); }

bool Witness::AwaitWelcome() {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  std::unique_lock<std::mutex> lock(mutex_);
  return woken_.wait_until(lock, deadline, [this] { return link_->welcomed(); });
}

Tally Witness::Finish() {
  Quit();
  recorder_->page().totals.closed.store(1, std::memory_order_relaxed);
  link_->Goodbye(/*failed=*/false);
  return tally_;
}

void Witness::Quit() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  woken_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Witness::Train() {
  bool welcomed = false;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    lock.unlock();
    link_->Poll(Recorder::NowNs());
    if (welcomed && !link_->welcomed()) disturbed_ = true;
    welcomed = link_->welcomed();
    TrainWindow(tally_);
    lock.lock();
    woken_.notify_all();
    woken_.wait_for(lock, kPace, [this] { return stop_; });
  }
}

void Witness::TrainWindow(Tally& tally) {
  constexpr auto kRole = GroupRole::kDp;
  constexpr auto kOp = CollectiveOp::kAllReduce;
  constexpr auto kTraffic = TrafficClass::kGradient;
  page::PageTotals& totals = recorder_->page().totals;
  page::WindowRecord record{};
  record.window_index = tally.windows;
  record.kind = static_cast<uint8_t>(WindowKind::kFull);
  record.mode = static_cast<uint8_t>(SyncMode::kWindow);
  record.micro_steps = record.planned_micro_steps = record.min_micro_steps = record.max_micro_steps = kMicroSteps;
  record.intended_reductions = record.issued_reductions = 1;
  record.intended_collectives = record.issued_collectives = record.completed_collectives = 1;
  record.gradient_bytes = kBytes + tally.windows;
  record.begin_ns = static_cast<uint64_t>(Recorder::NowNs());
  for (uint32_t step = 1; step <= kMicroSteps; ++step) {
    Recorder::AddOwned(totals.micro_step_count, 1);
    recorder_->Record(EventKind::kMicroStepBegin, kRole, kOp, kTraffic, step, 0, Recorder::NowNs());
    recorder_->Record(EventKind::kMicroStepEnd, kRole, kOp, kTraffic, step, 1, Recorder::NowNs());
  }
  const int64_t issued_ns = Recorder::NowNs();
  recorder_->CollectiveIssued(kRole, kOp, kTraffic, record.gradient_bytes, 1, /*intended=*/true, kMicroSteps, issued_ns);
  recorder_->CollectiveDone(kRole, kOp, kTraffic, /*ok=*/true, kMicroSteps, issued_ns, Recorder::NowNs());
  record.end_ns = static_cast<uint64_t>(Recorder::NowNs());
  recorder_->WindowClosed(record);
  Recorder::AddOwned(totals.window_full_count, 1);
  Recorder::AddOwned(totals.window_index, 1);
  tally.windows += 1;
  tally.micro_steps += kMicroSteps;
  tally.events += 2 * kMicroSteps + 2;
  tally.collectives += 1;
  tally.bytes += record.gradient_bytes;
}

}  // namespace gradgate::testing
