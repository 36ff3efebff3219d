#include "client/target.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"

namespace gradgate::client {
namespace {

using ::testing::HasSubstr;

void ExpectInvalid(absl::string_view text, const std::string& why) {
  const auto target = ParseTarget(text);
  ASSERT_EQ(target.status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_THAT(std::string(target.status().message()), HasSubstr(why)) << text;
}

TEST(ParseTarget, RefusesWhatItCannotReach) {
  ExpectInvalid("", "has no port");
  ExpectInvalid("node2", "target \"node2\" has no port");
  ExpectInvalid("node2:", "has port \"\", not 1 to 65535");
  ExpectInvalid("node2:0", "has port \"0\"");
  ExpectInvalid("node2:65536", "has port \"65536\"");
  ExpectInvalid("node2:http", "has port \"http\"");
  ExpectInvalid(":9766", "has no host");
  ExpectInvalid("[]:9766", "has no host");
  ExpectInvalid("::1:9766", "is of no known form");
  ExpectInvalid("http://node2:9766", "is of no known form");
  ExpectInvalid("unix-abstract:x", "has port \"x\"");
  ExpectInvalid("unix:", "empty socket path");
  ExpectInvalid("unix://", "empty socket path");
}

TEST(ParseTarget, RefusesASocketPathLongerThanTheKernelTakes) {
  const std::string longest = "/" + std::string(106, 'x');
  EXPECT_TRUE(ParseTarget(longest).ok());
  ExpectInvalid(longest + "y", "has 108 bytes, the kernel takes 107; use a shorter directory (GRADGATE_DIR)");
}

TEST(ParseTarget, KnowsUnixSockets) {
  for (const char* text : {"unix:/run/gradgate/api.sock", "unix:///run/gradgate/api.sock", "/run/gradgate/api.sock"}) {
    const auto target = ParseTarget(text);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ(target->kind, Target::Kind::kUnix);
    EXPECT_EQ(target->address, "/run/gradgate/api.sock");
    EXPECT_EQ(target->GrpcName(), "unix:/run/gradgate/api.sock");
  }
}

TEST(ParseTarget, TellsThisMachineFromOthers) {
  for (const char* text : {"localhost:1", "127.0.0.1:65535", "127.8.9.10:80", "[::1]:9766"}) {
    const auto target = ParseTarget(text);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_TRUE(target->loopback) << text;
    EXPECT_EQ(target->GrpcName(), std::string("dns:///") + text);
  }
  for (const char* text : {"127.evil.org:1", "127.0.0.+1:1", "127.0.0.:1", "127.0.0.1.evil.org:1", "node2:9766",
                           "10.0.0.1:9766", "[::2]:9766", "0.0.0.0:1"}) {
    const auto target = ParseTarget(text);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_FALSE(target->loopback) << text;
  }
}

TEST(SocketDirectory, TakesTheFirstThatIsThere) {
  const gradgate::testing::TempDirectory existing;
  EXPECT_EQ(*SocketDirectory({"/set", existing.path(), "/run/user/7"}), "/set");
  EXPECT_EQ(*SocketDirectory({"", existing.path(), "/run/user/7"}), existing.path());
  EXPECT_EQ(*SocketDirectory({"", existing.path() + "/none", "/run/user/7"}), "/run/user/7/gradgate");
}

TEST(SocketDirectory, SaysWhatItLookedFor) {
  const auto directory = SocketDirectory({"", "/nowhere/gradgate", ""});
  ASSERT_EQ(directory.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(directory.status().message()),
              HasSubstr("GRADGATE_DIR and XDG_RUNTIME_DIR are not set and /nowhere/gradgate does not exist"));
}

TEST(TargetInDirectory, IsTheApiSocket) {
  EXPECT_EQ(TargetInDirectory("/a/b")->address, "/a/b/api.sock");
  EXPECT_EQ(TargetInDirectory("/a/b/")->address, "/a/b/api.sock");
  EXPECT_EQ(TargetInDirectory("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DefaultTarget, FollowsTheEnvironment) {
  setenv("GRADGATE_DIR", "/some/where", 1);
  EXPECT_EQ(DefaultTarget()->address, "/some/where/api.sock");
  unsetenv("GRADGATE_DIR");
}

}  // namespace
}  // namespace gradgate::client
