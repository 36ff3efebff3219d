// A file is the former one or the whole new one.

#include "client/cli/whole_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate::cli {
namespace {

using ::testing::HasSubstr;

class WholeFile : public ::testing::Test {
 protected:
  WholeFile() {
    char name[] = "/tmp/gradgate-whole-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~WholeFile() override { std::filesystem::remove_all(folder_); }

  std::string At(const std::string& name) const { return folder_ + "/" + name; }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  size_t Files() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++count;
    return count;
  }

  std::string folder_;
};

TEST_F(WholeFile, IsNewWithTheModeOfTheMask) {
  const mode_t before = umask(027);
  EXPECT_TRUE(WriteWholeFile(At("a"), "text").ok());
  umask(before);
  struct stat now {};
  stat(At("a").c_str(), &now);
  EXPECT_EQ(now.st_mode & 07777, 0640u);
  EXPECT_EQ(Read(At("a")), "text");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(WholeFile, ReplacesAnotherAndKeepsItsMode) {
  ASSERT_TRUE(WriteWholeFile(At("a"), "a longer text").ok());
  chmod(At("a").c_str(), 0600);
  EXPECT_TRUE(WriteWholeFile(At("a"), "new").ok());
  struct stat now {};
  stat(At("a").c_str(), &now);
  EXPECT_EQ(now.st_mode & 07777, 0600u);
  EXPECT_EQ(Read(At("a")), "new");
}

TEST_F(WholeFile, FollowsALink) {
  ASSERT_TRUE(WriteWholeFile(At("a"), "old").ok());
  std::filesystem::create_symlink("a", At("link"));
  EXPECT_TRUE(WriteWholeFile(At("link"), "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(At("link")));
  EXPECT_EQ(Read(At("a")), "new");
}

TEST_F(WholeFile, WritesIntoWhatIsNoFileAndLeavesItThere) {
  EXPECT_TRUE(WriteWholeFile("/dev/null", "text").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(WriteWholeFile("/dev/full", "text").message(),
            "cannot write /dev/full: cannot write the output: No space left on device");
}

TEST_F(WholeFile, SaysWhyItCannotAndLeavesNothing) {
  EXPECT_THAT(WriteWholeFile(At("none/a"), "x").message(), HasSubstr("/none/a: No such file or directory"));
  EXPECT_THAT(WriteWholeFile(folder_, "x").message(), HasSubstr("Is a directory"));
  EXPECT_EQ(Files(), 0u);
}

TEST_F(WholeFile, HalfWrittenLeavesTheFormerOneAlone) {
  ASSERT_TRUE(WriteWholeFile(At("a"), "old").ok());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {100, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const absl::Status status = WriteWholeFile(At("a"), std::string(1000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(status.message(), HasSubstr("File too large"));
  EXPECT_EQ(Read(At("a")), "old");
  EXPECT_EQ(Files(), 1u);
}

}  // namespace
}  // namespace gradgate::cli
