// A listener with its loop on a thread, over a registry that the test can ask.

#ifndef GRADGATE_TESTS_DAEMON_NODE_LISTENER_FIXTURE_H_
#define GRADGATE_TESTS_DAEMON_NODE_LISTENER_FIXTURE_H_

#include <dirent.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/node/shim_listener.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_trainer.h"

namespace gradgate::testing {

inline constexpr std::chrono::seconds kDeadline(20);

inline size_t OpenDescriptors() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    std::string pattern = ::testing::TempDir() + "/gg_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~ListenerTest() override {
    Stop();
    rmdir(directory_.c_str());
  }

  void Start(ListenerOptions options = {}) {
    Bind(options);
    Serve();
  }

  // Clients can connect and send from here on, but are not heard before Serve().
  void Bind(ListenerOptions options = {}) {
    options.socket_path = path();
    options.version = "1.2.3";
    options.poll_interval = poll_interval_;
    ListenerCallbacks callbacks;
    callbacks.changed = [this] {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++changes_;
      changed_.notify_all();
    };
    callbacks.log = [this](absl::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      log_.push_back(std::string(line));
    };
    auto listener = ShimListener::Create(options, &clock_, &registry_, &rejections_, std::move(callbacks));
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    if (policies_ != nullptr) listener_->Offer(policies_);
  }
  void Serve() {
    thread_ = std::thread([this] { listener_->Run(); });
  }

  void Stop() {
    if (thread_.joinable()) {
      listener_->Stop();
      thread_.join();
    }
    listener_.reset();
  }

  std::string path() const { return directory_ + "/shim.sock"; }

  // Waits for the listener to report changes until `condition` holds.
  bool Await(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (!condition()) {
      std::unique_lock<std::mutex> lock(mutex_);
      if (!changed_.wait_until(lock, deadline, [this] { return changes_ != checked_; })) return condition();
      checked_ = changes_;
    }
    return true;
  }

  RankState StateOf(uint32_t rank) {
    const auto stats = registry_.GetJobStats("job");
    if (stats.ok()) {
      for (const RankView& view : stats->ranks) {
        if (view.identity.rank == rank) return view.state;
      }
    }
    ADD_FAILURE() << "no rank " << rank;
    return RankState::kRunning;
  }

  // Sends bytes as a first packet and expects a refusal, then the end of the connection.
  void ExpectRefused(const void* bytes, size_t size, const std::vector<int>& descriptors, Rejection reason,
                     link::RejectReason told) {
    FakeTrainer trainer(path());
    ASSERT_TRUE(trainer.connected());
    ASSERT_TRUE(trainer.Send(bytes, size, descriptors));
    ExpectRefusal(trainer, reason, told);
  }
  void ExpectRefusal(FakeTrainer& trainer, Rejection reason, link::RejectReason told) {
    const auto answer = trainer.Receive();
    EXPECT_EQ(answer.kind, FakeTrainer::Answer::Kind::kReject);
    EXPECT_EQ(answer.reason, told) << answer.message;
    EXPECT_EQ(trainer.Receive().kind, FakeTrainer::Answer::Kind::kEnd);
    EXPECT_EQ(rejections_.Get(reason), 1u) << answer.message;
  }

  const PolicySource* policies_ = nullptr;  // both before Bind()
  absl::Duration poll_interval_ = absl::Milliseconds(10);
  std::string directory_;
  SystemClock clock_;
  RejectionCounts rejections_;
  Registry registry_{RegistryOptions{}, &clock_};
  std::unique_ptr<ShimListener> listener_;
  std::thread thread_;
  std::mutex mutex_;  // guards what follows, but for checked_
  std::condition_variable changed_;
  int changes_ = 0;
  int checked_ = 0;
  std::vector<std::string> log_;
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_NODE_LISTENER_FIXTURE_H_
