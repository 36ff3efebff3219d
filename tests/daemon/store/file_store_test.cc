// Files that are damaged, foreign, locked, full or forbidden.

#include "daemon/store/file_store.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/file_image.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

StoreImage Sample() {
  StoreImage image;
  image.revision = 7;
  image.values["policies/a"] = {"policies/a", "1", 3};
  image.values["policies/b"] = {"policies/b", std::string("\0x", 2), 7};
  return image;
}

std::string ErrorOf(const std::string& bytes) { return std::string(DecodeStoreFile(bytes).status().message()); }

TEST(FileImage, WhatWasEncodedIsDecoded) {
  const auto image = DecodeStoreFile(EncodeStoreFile(Sample()));
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->revision, 7);
  ASSERT_EQ(image->values.size(), 2u);
  EXPECT_EQ(image->values.at("policies/b").value, std::string("\0x", 2));
  EXPECT_EQ(image->values.at("policies/b").revision, 7);
  EXPECT_EQ(image->values.at("policies/a").key, "policies/a");
}

TEST(FileImage, WrongMagicShortAndLongAreTold) {
  const std::string good = EncodeStoreFile(Sample());
  EXPECT_EQ(ErrorOf(""), "it is not a gradgate store");
  EXPECT_EQ(ErrorOf("ggstore2" + good.substr(8)), "it is not a gradgate store");
  EXPECT_EQ(ErrorOf(good.substr(0, 23)), "it is cut off within its header");
  EXPECT_THAT(ErrorOf(good.substr(0, good.size() - 1)), HasSubstr("bytes follow its header, and"));
  EXPECT_THAT(ErrorOf(good + "x"), HasSubstr("bytes follow its header, and"));
  EXPECT_EQ(ErrorOf("ggstore1" + std::string(kMaxStoreFileBytes, 'x')), "it is longer than a store may be");
}

TEST(FileImage, EachFlippedBitIsFound) {
  const std::string good = EncodeStoreFile(Sample());
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(DecodeStoreFile(bad).ok()) << "bit " << bit;
  }
}

TEST(FileImage, ContentsMustBeAStores) {
  StoreImage image = Sample();
  image.values["policies/a"].revision = 8;
  EXPECT_THAT(ErrorOf(EncodeStoreFile(image)), HasSubstr("policies/a has revision 8, the file 7"));
  image = Sample();
  image.values["policies/a"].revision = 0;
  EXPECT_THAT(ErrorOf(EncodeStoreFile(image)), HasSubstr("policies/a has revision 0"));
  image = Sample();
  image.values["bad\n"] = {"bad\n", "", 1};
  EXPECT_THAT(ErrorOf(EncodeStoreFile(image)), HasSubstr("not printable"));
  image = Sample();
  image.values["policies/a"].value = std::string(kMaxStoreValueBytes + 1, 'x');
  EXPECT_THAT(ErrorOf(EncodeStoreFile(image)), HasSubstr("at most 65536"));
  image = Sample();
  image.revision = -1;
  EXPECT_THAT(ErrorOf(EncodeStoreFile(image)), HasSubstr("out of range"));
}

class FileStoreTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Store>> Open() {
    return OpenFileStore(path_, [this](absl::string_view line) { log_.emplace_back(line); });
  }
  std::unique_ptr<Store> MustOpen() {
    auto store = Open();
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  std::vector<std::string> Files() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) names.push_back(entry.path().filename());
    return names;
  }

  testing::TempDir directory_;
  const std::string path_ = directory_ / "store";
  std::vector<std::string> log_;
};

TEST_F(FileStoreTest, NothingIsLeftBehindUnlessSomethingWasPut) {
  MustOpen().reset();
  EXPECT_THAT(Files(), IsEmpty());
  auto store = MustOpen();
  EXPECT_TRUE(store->Put("policies/a", "1", 0, Soon()).ok());
  store.reset();
  EXPECT_THAT(Files(), ::testing::ElementsAre("store"));
  struct stat file;
  ASSERT_EQ(stat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
}

TEST_F(FileStoreTest, SecondDaemonIsKeptOut) {
  auto first = MustOpen();
  const auto second = Open();
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another gradgated has the store"));
  first.reset();
  EXPECT_TRUE(Open().ok());
}

TEST_F(FileStoreTest, DamagedFileIsPutAsideAndNoRevisionComesAgain) {
  MustOpen()->Put("policies/a", "1", 0, Soon()).IgnoreError();
  std::string damaged = ReadAll(path_);
  damaged.pop_back();
  std::ofstream(path_, std::ios::binary) << damaged;
  auto store = MustOpen();
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], AllOf(HasSubstr("bytes follow its header"), HasSubstr("put aside as " + path_ + ".damaged-")));
  EXPECT_EQ(store->Health().warning, log_[0]);
  EXPECT_THAT(store->List(""), IsEmpty());
  const int64_t revision = store->Put("policies/a", "2", 0, Soon()).value_or(0);
  EXPECT_GT(revision, 1'700'000'000);
  const std::string aside = log_[0].substr(log_[0].find(path_ + ".damaged-"));
  EXPECT_EQ(ReadAll(aside.substr(0, aside.find(' '))), damaged);
  store.reset();
  log_.clear();
  store = MustOpen();
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_EQ(store->Health().warning, "");
  EXPECT_EQ(store->List("policies/a")[0].revision, revision);
}

TEST_F(FileStoreTest, ForeignFileIsPutAside) {
  std::ofstream(path_) << "my notes";
  const auto store = MustOpen();
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], HasSubstr("it is not a gradgate store"));
  EXPECT_EQ(Files().size(), 2u) << "the notes and the lock";
}

TEST_F(FileStoreTest, WhatIsNoFileIsRefused) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Open().status())) << Open().status();
  ASSERT_EQ(rmdir(path_.c_str()), 0);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Open().status())) << "and nobody waits for its other end";
}

TEST_F(FileStoreTest, MissingDirectoryIsNamed) {
  const auto store = OpenFileStore(directory_ / "none/store", [](absl::string_view) {});
  EXPECT_TRUE(absl::IsNotFound(store.status())) << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("make its directory"));
}

TEST_F(FileStoreTest, LinkStaysALink) {
  std::ofstream(directory_ / "real", std::ios::binary) << EncodeStoreFile(Sample());
  std::filesystem::create_symlink(directory_ / "real", path_);
  EXPECT_TRUE(MustOpen()->Put("policies/c", "1", 0, Soon()).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(MustOpen()->List("").size(), 3u);
}

TEST_F(FileStoreTest, RemainsOfACrashAreOverwritten) {
  std::ofstream(path_ + ".new") << "half";
  std::ofstream(path_ + ".lock") << "";
  EXPECT_TRUE(MustOpen()->Put("policies/a", "1", 0, Soon()).ok());
  EXPECT_EQ(MustOpen()->List("").size(), 1u);
}

TEST_F(FileStoreTest, FullDiskIsThePutsErrorAndLosesNothing) {
  // The limit on a file's size stands for the disk's end; it holds for the process, hence a child.
  auto store = MustOpen();
  EXPECT_TRUE(store->Put("policies/a", "1", 0, Soon()).ok());
  store.reset();
  const std::string before = ReadAll(path_);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    auto own = OpenFileStore(path_, [](absl::string_view) {});
    const rlimit small{200, 200};
    setrlimit(RLIMIT_FSIZE, &small);
    const auto failed = (*own)->Put("policies/b", std::string(1000, 'x'), 0, Soon());
    const bool kept =
        (*own)->List("").size() == 1 && !failed.ok() && absl::StrContains(failed.status().message(), "cannot write");
    const auto fits = (*own)->Put("policies/c", "1", 0, Soon());
    const bool grew = fits.ok() && *fits == 3;  // 2 is never given again
    own->reset();
    _exit(kept && grew ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(ReadAll(path_), before);
  EXPECT_EQ(MustOpen()->List("").size(), 2u);
  EXPECT_EQ(Files().size(), 1u) << "no half file stays";
}

TEST_F(FileStoreTest, DirectoryThatWentAwayIsThePutsError) {
  auto store = MustOpen();
  EXPECT_TRUE(store->Put("policies/a", "1", 0, Soon()).ok());
  std::filesystem::remove_all(directory_.path());
  const auto failed = store->Put("policies/a", "2", std::nullopt, Soon());
  EXPECT_TRUE(absl::IsNotFound(failed.status())) << failed.status();
  EXPECT_EQ(store->List("policies/a")[0].value, "1");
  EXPECT_EQ(store->Health().error_count, 1u);
}

TEST_F(FileStoreTest, KilledWriterLeavesTheOldFileOrTheNewOne) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int64_t last = 0;
  for (int round = 0; round < 10; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      auto store = OpenFileStore(path_, [](absl::string_view) {});
      for (int i = 0; store.ok(); ++i)
        (*store)->Put("policies/a", std::string(5000, 'a' + i % 26), std::nullopt, Soon()).IgnoreError();
      _exit(1);
    }
    usleep(20'000 + random() % 30'000);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    const auto store = MustOpen();
    EXPECT_THAT(log_, IsEmpty());
    const auto values = store->List("policies/a");
    if (values.empty()) continue;
    EXPECT_EQ(values[0].value, std::string(5000, values[0].value[0]));
    EXPECT_GE(values[0].revision, last);
    last = values[0].revision;
  }
  EXPECT_GT(last, 0);
}

}  // namespace
}  // namespace gradgate
