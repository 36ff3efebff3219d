#include "shim/reduce/file_store.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/shim/reduce/temporary_directory.h"

namespace gradgate {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(FileStore, ADirectoryThatCannotBeMadeIsNamed) {
  TemporaryDirectory directory;
  std::ofstream(directory.path() + "/file") << "x";
  std::string value;
  for (const std::string& path : {directory.path() + "/file/store", std::string("/proc/gradgate/store")}) {
    FileStore store(path);
    const Status status = store.Set("key", "value", kSecond);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("'" + path + "'"), std::string::npos) << status.message();
  }
  FileStore store(directory.path() + "/file");
  const Status status = store.Get("key", 30 * kSecond, &value);
  EXPECT_EQ(status.code(), Code::kUnavailable) << "at once, not as a missing key";
  EXPECT_NE(status.message().find(directory.path() + "/file"), std::string::npos) << status.message();
}

TEST(FileStore, AFileThatCannotBeReadIsNamed) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  std::string value;
  std::filesystem::create_directory(directory.path() + "/k.folder");
  EXPECT_EQ(store.Get("folder", kSecond, &value).code(), Code::kUnavailable);
  EXPECT_EQ(store.Set("folder", "value", kSecond).code(), Code::kUnavailable);
  std::ofstream(directory.path() + "/k.long") << std::string(65537, 'x');
  const Status status = store.Get("long", kSecond, &value);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("/k.long'"), std::string::npos) << status.message();
}

TEST(FileStore, LeavesNoTemporaryFiles) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  std::filesystem::create_directory(directory.path() + "/k.folder");
  ASSERT_FALSE(store.Set("folder", "value", kSecond).ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store.Set("key", std::to_string(i), kSecond).ok());
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) files += entry.is_regular_file() ? 1u : 0u;
  EXPECT_EQ(files, 1u);
}

// In a process with a small file system of its own: 0 as it should be, 1 not, 77 no permission to mount.
int FillADisk(const std::string& path) {
  const std::string user = "0 " + std::to_string(::getuid()) + " 1";
  const std::string group = "0 " + std::to_string(::getgid()) + " 1";
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
  std::ofstream("/proc/self/uid_map") << user;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/gid_map") << group;
  if (::mount("none", path.c_str(), "tmpfs", 0, "size=128k") != 0) return 77;
  FileStore store(path);
  for (int i = 0; i < 10; ++i) {
    const Status status = store.Set("key" + std::to_string(i), std::string(60000, 'x'), kSecond);
    if (status.ok()) continue;
    std::string value;
    const bool named = status.message().find("'" + path) != std::string::npos;
    const bool earlier_stays = store.Get("key0", kSecond, &value).ok() && value.size() == 60000;
    return status.code() == Code::kResourceExhausted && named && earlier_stays ? 0 : 1;
  }
  return 1;
}

TEST(FileStore, AFullDiskIsNamed) {
  TemporaryDirectory directory;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(FillADisk(directory.path()));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no permission to mount a file system";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace gradgate
