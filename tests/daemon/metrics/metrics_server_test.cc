#include "daemon/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "daemon/node/clock.h"
#include "daemon/store/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using testing::FakePage;
using ::testing::HasSubstr;

// The body of http://127.0.0.1:port/metrics.
std::string Scrape(int port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  const timeval deadline{20, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return "no connection";
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  if (send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "no request";
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = recv(socket.get(), buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, got);
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? answer : answer.substr(body + 4);
}

class MetricsServerTest : public ::testing::Test {
 protected:
  void Start() {
    auto server = MetricsServer::Start("127.0.0.1:0", "1.2.3", &registry_, &rejections_, &store_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  SystemClock clock_;
  Registry registry_{RegistryOptions{}, &clock_};
  RejectionCounts rejections_;
  MemoryStore store_;
  std::unique_ptr<MetricsServer> server_;
};

void Fill(FakePage& fake) {
  fake.page().totals.micro_step_count.store(8);
  fake.page().roles[0].issued_count.store(2);
  fake.page().cells[0][0].issued_count[0].store(4);
  fake.CloseWindow();
  fake.AddEvent(EventKind::kCollectiveDone, 5'000'000);
}

TEST_F(MetricsServerTest, ScrapeIsCurrentWithoutATick) {
  Start();
  FakePage page({});
  ASSERT_TRUE(registry_.Register(1000, page.Map()).ok());
  Fill(page);
  const std::string text = Scrape(server_->port());
  EXPECT_THAT(text, HasSubstr("gradgate_micro_steps_total{slot=\"0\"} 8\n"));
  EXPECT_THAT(text, HasSubstr("gradgate_window_duration_seconds_count 1\n"));
  EXPECT_THAT(text, HasSubstr("gradgate_store_reachable 1\n"));
  EXPECT_THAT(text, HasSubstr("gradgate_collective_duration_seconds_count{group=\"dp\",op=\"all_reduce\"} 1\n"));
}

TEST_F(MetricsServerTest, AddressInUseIsNamed) {
  Start();
  const std::string taken = "127.0.0.1:" + std::to_string(server_->port());
  const auto second = MetricsServer::Start(taken, "1", &registry_, &rejections_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("cannot serve metrics on " + taken));
}

TEST_F(MetricsServerTest, PromtoolHasNothingToSay) {
  if (std::system("command -v promtool > /dev/null") != 0)
    GTEST_SKIP() << "promtool is not installed (Debian package prometheus)";
  Start();
  FakePage page({.job_name = "quo\"ted \\ größe"});
  ASSERT_TRUE(registry_.Register(1000, page.Map()).ok());
  Fill(page);
  std::string path = ::testing::TempDir() + "/scrape_XXXXXX";
  UniqueFd file(mkstemp(path.data()));
  std::ofstream(path) << Scrape(server_->port());
  FILE* promtool = popen(("promtool check metrics < " + path + " 2>&1").c_str(), "r");
  ASSERT_NE(promtool, nullptr);
  std::string said;
  char buffer[512];
  while (std::fgets(buffer, sizeof(buffer), promtool) != nullptr) said += buffer;
  const int status = pclose(promtool);
  unlink(path.c_str());
  EXPECT_EQ(status, 0);
  EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace gradgate
