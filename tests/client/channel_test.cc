#include "client/channel.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"

namespace gradgate::client {
namespace {

using ::testing::HasSubstr;

class Channel : public ::testing::Test {
 protected:
  std::string Pem(const std::string& name, const std::string& text = "-----BEGIN CERTIFICATE-----\n") {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  static void ExpectInvalid(const std::string& target, const TlsFiles& tls, const std::string& why) {
    const auto channel = OpenChannel(*ParseTarget(target), tls);
    ASSERT_EQ(channel.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(channel.status().message()), HasSubstr(why));
  }

  gradgate::testing::TempDirectory directory_;
};

TEST_F(Channel, OtherMachinesNeedTls) {
  ExpectInvalid("10.0.0.1:9766", {}, "target 10.0.0.1:9766 is another machine and needs TLS");
}

TEST_F(Channel, TlsNeedsItsFiles) {
  const std::string pem = Pem("ca.pem");
  ExpectInvalid("node2:1", {"", pem, pem}, "TLS needs the CA file");
  ExpectInvalid("node2:1", {pem, pem, ""}, "go together; only \"" + pem + "\" was given");
  ExpectInvalid("node2:1", {pem, "", pem}, "go together; only \"" + pem + "\" was given");
  ExpectInvalid("node2:1", {pem + ".none", "", ""}, "cannot read PEM file " + pem + ".none: No such file or directory");
  ExpectInvalid("node2:1", {directory_.path(), "", ""}, "cannot read PEM file " + directory_.path() + ": Is a directory");
  ExpectInvalid("node2:1", {Pem("text", "hello"), "", ""}, "is not PEM");
  ExpectInvalid("unix:/a/api.sock", {pem, "", ""}, "TLS files were given for the Unix socket /a/api.sock");
}

TEST_F(Channel, OpensWithoutConnecting) {
  const std::string pem = Pem("ca.pem");
  EXPECT_TRUE(OpenChannel(*ParseTarget("unix:/nowhere/api.sock"), {}).ok());
  EXPECT_TRUE(OpenChannel(*ParseTarget("localhost:1"), {}).ok());
  EXPECT_TRUE(OpenChannel(*ParseTarget("node2:1"), {pem, "", ""}).ok());
  EXPECT_TRUE(OpenChannel(*ParseTarget("node2:1"), {pem, pem, pem}).ok());
}

}  // namespace
}  // namespace gradgate::client
