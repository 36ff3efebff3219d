// tests/shim/link
// A directory of its own, a page, a clock that the test turns, and what the link told.

#ifndef GRADGATE_TESTS_SHIM_LINK_LINK_FIXTURE_H_
#define GRADGATE_TESTS_SHIM_LINK_LINK_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shim/link/link.h"
#include "shim/stats/recorder.h"
#include "tests/shim/link/fake_daemon.h"

namespace gradgate::test {

inline constexpr int64_t kSecondNs = 1'000'000'000;

class LinkTest : public ::testing::Test {
 protected:
  LinkTest() {
    ::unsetenv("GRADGATE_DAEMON_UID");
    char name[] = "/tmp/gg_link_XXXXXX";
    EXPECT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    const Status status = Recorder::Create({}, &recorder_);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  ~LinkTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Link> MakeLink() { return MakeLink({directory_}); }
  std::unique_ptr<Link> MakeLink(std::vector<std::string> directories) {
    return std::make_unique<Link>(std::move(directories), recorder_->fd(), &recorder_->page(), &LinkTest::Told, this);
  }

  // A link that a daemon has welcomed.
  std::unique_ptr<Link> MakeWelcomed(FakeDaemon* daemon, int* connection) {
    auto link = MakeLink();
    link->Poll(now_ns_);
    *connection = daemon->AcceptHello();
    FakeDaemon::Send(*connection, Welcome());
    link->Poll(now_ns_);
    EXPECT_TRUE(link->welcomed());
    return link;
  }

  uint64_t Reconnects() const { return recorder_->page().totals.reconnect_count.load(); }

  static void Told(void* user, const char* reason, const char* message) {
    static_cast<LinkTest*>(user)->told_.emplace_back(reason, message);
  }

  std::string directory_;
  std::unique_ptr<Recorder> recorder_;
  int64_t now_ns_ = 100 * kSecondNs;
  std::vector<std::pair<std::string, std::string>> told_;  // reason, message
};

}  // namespace gradgate::test

#endif  // GRADGATE_TESTS_SHIM_LINK_LINK_FIXTURE_H_
