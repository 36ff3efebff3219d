#include "daemon/rpc/listen_address.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

using ::testing::HasSubstr;

TEST(ListenAddress, HostAndPortAreSplit) {
  EXPECT_EQ(ParseHostPort("127.0.0.1:80")->host, "127.0.0.1");
  EXPECT_EQ(ParseHostPort("127.0.0.1:80")->port, 80);
  EXPECT_EQ(ParseHostPort("[::1]:0")->host, "::1");
  EXPECT_EQ(ParseHostPort("node-a:65535")->port, 65535);
}

TEST(ListenAddress, OtherTextIsRefusedByName) {
  for (const char* text : {"", "80", "host", "host:", ":80", "host:65536", "host:-1", "::1:80", "[::1]", "[]:80", "host:8o"}) {
    const auto address = ParseHostPort(text);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr(std::string("\"") + text + "\" is not host:port"));
  }
}

TEST(ListenAddress, LoopbackIsKnown) {
  for (const char* host : {"localhost", "127.0.0.1", "127.9.9.9", "::1"}) EXPECT_TRUE(IsLoopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "128.0.0.1", ""}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(TcpCredentials, PlainTextOnLoopbackAlone) {
  EXPECT_TRUE(MakeTcpCredentials({"127.0.0.1", 0}, {}).ok());
  const auto open = MakeTcpCredentials({"0.0.0.0", 0}, {});
  EXPECT_EQ(open.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(open.status().message()), HasSubstr("0.0.0.0 is reachable from other machines and needs --tls_cert"));
}

TEST(TcpCredentials, IncompleteOrUnreadableFilesAreNamed) {
  const auto partial = MakeTcpCredentials({"127.0.0.1", 0}, {.cert = "a", .key = "b", .client_ca = ""});
  EXPECT_THAT(std::string(partial.status().message()), HasSubstr("give all three"));
  const auto missing = MakeTcpCredentials({"0.0.0.0", 0}, {.cert = "/nowhere/c", .key = "b", .client_ca = "d"});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("--tls_cert /nowhere/c"));
}

}  // namespace
}  // namespace gradgate
