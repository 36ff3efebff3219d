// The daemons' real desk of policies in the simulated nodes, and what it costs where there are many.

#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "daemon/policy/policy_desk.h"
#include "tests/sim/world.h"

namespace gradgate::sim {
namespace {

const JobKey kJob{1000, "train", "0123456789abcdef0123456789abcdef", 1};

StoredValue ValueOf(const JobKey& job, const SyncPolicy& policy) {
  store::v1::StoredPolicy stored;
  stored.set_user_id(job.user_id);
  stored.set_job_name(job.job_name);
  stored.set_run_id(job.run_id);
  stored.set_attempt(static_cast<int32_t>(job.attempt));
  v1::Policy* const content = stored.mutable_policy();
  content->set_bucket_bytes(static_cast<int64_t>(policy.bucket_bytes));
  content->set_sync_mode(static_cast<v1::SyncMode>(policy.sync_mode));
  content->set_wire_type(static_cast<v1::WireType>(policy.wire_type));
  content->set_reshard(static_cast<v1::Reshard>(policy.reshard));
  content->set_enforcement(static_cast<v1::Enforcement>(policy.enforcement));
  return {absl::StrCat("policies/", job.user_id, "/", absl::BytesToHexString(job.job_name), "/", job.run_id, "/", job.attempt),
          stored.SerializeAsString(), static_cast<int64_t>(policy.version)};
}

// A daemon's copy of a store, and nothing behind it.
class CopyStore final : public Store {
 public:
  absl::StatusOr<int64_t> Put(absl::string_view, absl::string_view, std::optional<int64_t>, absl::Time) override {
    return absl::UnavailableError("a copy");
  }
  absl::Status Delete(absl::string_view, absl::Time) override { return absl::UnavailableError("a copy"); }
  std::vector<StoredValue> List(absl::string_view) const override { return values; }
  void Announce(absl::string_view, absl::string_view) override {}
  StoreHealth Health() const override { return {}; }
  void OnChange(Changed) override {}

  std::vector<StoredValue> values;
};

class RealDesk final : public Desk {
 public:
  RealDesk() : desk_(&store_, &clock_, "node") { Copied({}); }

  // Beside it: another run of the same name, another user's job, and what is no policy.
  void Copied(const SyncPolicy& policy) override {
    const SyncPolicy other{.version = policy.version + 100, .bucket_bytes = 8192, .sync_mode = SyncMode::kEveryMicroStep};
    store_.values = {ValueOf({kJob.user_id, kJob.job_name, kJob.run_id, 2}, other),
                     ValueOf({kJob.user_id + 1, kJob.job_name, kJob.run_id, 0}, other),
                     ValueOf({kJob.user_id, "train2", kJob.run_id, 0}, other),
                     {"policies/1000/7472/x/0", "no message", 7},
                     {"policies/", "", 8}};
    if (policy.version != 0) store_.values.push_back(ValueOf(kJob, policy));
    desk_.Refresh();
  }

  link::PolicyFrame Offered() const override {
    link::PolicyFrame frame = desk_.FrameFor(kJob, "");
    if (frame.version != 0) frame.header = link::MakeHeader(link::FrameType::kPolicy, sizeof(frame));
    return frame;
  }

 private:
  CopyStore store_;
  SystemClock clock_;
  PolicyDesk desk_;
};

std::unique_ptr<Desk> MakeRealDesk() { return std::make_unique<RealDesk>(); }

TEST(PolicyDeskSim, NoScheduleBreaksAnInvariant) {
  const char* count = std::getenv("GRADGATE_SIM_SEEDS");
  const uint64_t seeds = count != nullptr ? std::strtoull(count, nullptr, 10) : 2'000;
  Coverage coverage;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Outcomes outcomes = RunSeed(seed, nullptr, MakeRealDesk);
    coverage.Add(outcomes.coverage);
    ASSERT_EQ(outcomes.violation.invariant, "") << "seed " << seed << ": " << outcomes.violation.text;
  }
  EXPECT_GT(coverage.adoptions, seeds);
}

// It makes of a copy what the model does, so what the model's schedules show is true of it.
TEST(PolicyDeskSim, SchedulesAreTheModels) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::vector<std::string> model, real;
    (void)RunSeed(seed, &model);
    (void)RunSeed(seed, &real, MakeRealDesk);
    ASSERT_EQ(model, real) << "seed " << seed;
  }
}

TEST(PolicyDeskSim, ManyDaemonsWithManyJobs) {
  constexpr uint32_t kDaemons = 1024, kJobs = 64;
  SystemClock clock;
  std::vector<StoredValue> values;
  for (uint32_t i = 0; i < kJobs; ++i)
    values.push_back(
        ValueOf({1000, absl::StrCat("job", i), kJob.run_id, 0}, {.version = i + 1, .bucket_bytes = 4096 * (i + 1)}));
  const size_t before = mallinfo2().uordblks;
  std::vector<std::unique_ptr<CopyStore>> stores;
  std::vector<std::unique_ptr<PolicyDesk>> desks;
  for (uint32_t i = 0; i < kDaemons; ++i) {
    stores.push_back(std::make_unique<CopyStore>());
    stores.back()->values = values;
    desks.push_back(std::make_unique<PolicyDesk>(stores.back().get(), &clock, absl::StrCat("node", i)));
  }
  const size_t copies = mallinfo2().uordblks - before;
  const auto from = std::chrono::steady_clock::now();
  for (const auto& desk : desks) desk->Refresh();
  const auto refreshed = std::chrono::steady_clock::now();
  for (const auto& desk : desks) ASSERT_EQ(desk->FrameFor({1000, "job63", kJob.run_id, 0}, "").version, kJobs);
  const auto asked = std::chrono::steady_clock::now();
  const auto microseconds = [](auto duration) {
    return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count()) / 1e3 / kDaemons;
  };
  const size_t held = mallinfo2().uordblks - before - copies;
  const auto kib = [](size_t bytes) { return static_cast<double>(bytes) / 1024 / kDaemons; };
  std::printf(
      "%u desks of %u jobs, each: %.1f KiB beside %.1f KiB of the store's copy, %.1f us to refresh, %.2f us to ask for a job\n",
      kDaemons, kJobs, kib(held), kib(copies), microseconds(refreshed - from), microseconds(asked - refreshed));
  EXPECT_LT(held / kDaemons, 256u << 10);
}

}  // namespace
}  // namespace gradgate::sim
