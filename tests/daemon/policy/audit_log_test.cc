// The audit log: its lines, its file in bad weather, and how many lines there may be.

#include "daemon/policy/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "daemon/node/mutex.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class FakeClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixSeconds(1'700'000'000); }
  uint64_t MonotonicNs() const override { return now_ns; }
  std::atomic<uint64_t> now_ns{1'000'000'000'000};
};

v1::AuditRecord Denied(const std::string& job) {
  v1::AuditRecord record;
  record.set_outcome(v1::AUDIT_OUTCOME_DENIED);
  record.set_action(v1::AUDIT_ACTION_SET);
  record.set_job(job);
  return record;
}

v1::AuditRecord Accepted(int64_t version) {
  v1::AuditRecord record;
  record.set_outcome(v1::AUDIT_OUTCOME_ACCEPTED);
  record.set_action(v1::AUDIT_ACTION_SET);
  record.set_to_version(version);
  return record;
}

class AuditLogTest : public ::testing::Test {
 protected:
  void Open(const std::string& path) {
    auto log = AuditLog::Open(
        path, "n1", [this](absl::string_view line) { Heard(line); }, &clock_);
    ASSERT_TRUE(log.ok()) << log.status();
    log_ = *std::move(log);
  }
  std::string OpenError(const std::string& path) {
    return std::string(AuditLog::Open(
                           path, "n1", [](absl::string_view) {}, &clock_)
                           .status()
                           .message());
  }
  void Heard(absl::string_view line) {
    MutexLock lock(&mutex_);
    heard_.emplace_back(line);
  }
  std::vector<std::string> heard() {
    MutexLock lock(&mutex_);
    return heard_;
  }
  void Add(const v1::AuditRecord& record) {
    log_->Add(record);
    ASSERT_TRUE(log_->Flush(absl::Seconds(20)));
  }
  static std::vector<std::string> Lines(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  static v1::AuditRecord Parse(const std::string& line) {
    v1::AuditRecord record;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(line, &record).ok()) << line;
    return record;
  }
  std::string path() { return directory_ / "audit.log"; }

  testing::TempDir directory_;
  FakeClock clock_;
  Mutex mutex_;
  std::vector<std::string> heard_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<AuditLog> log_;
};

TEST_F(AuditLogTest, LineSaysAllAndIsInBothPlaces) {
  Open(path());
  v1::AuditRecord record = Accepted(17);
  record.mutable_caller()->set_transport(v1::AUDIT_TRANSPORT_SOCKET);
  record.mutable_caller()->set_uid(0);
  record.set_from_version(16);
  record.set_actor("ann@host");
  v1::AuditChange& change = *record.add_changes();
  change.set_field("sync_mode");
  change.set_from("SYNC_MODE_AUTO");
  change.set_to("SYNC_MODE_WINDOW");
  Add(record);
  const auto lines = Lines(path());
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(heard(), ::testing::ElementsAre("audit " + lines[0]));
  EXPECT_THAT(lines[0], AllOf(HasSubstr("{\"time\":\"2023-11-14T22:13:20Z\",\"outcome\":\"AUDIT_OUTCOME_ACCEPTED\""),
                              HasSubstr("\"from_version\":\"16\",\"to_version\":\"17\""),
                              HasSubstr("{\"field\":\"sync_mode\",\"from\":\"SYNC_MODE_AUTO\",\"to\":\"SYNC_MODE_WINDOW\"}"),
                              HasSubstr("\"node_name\":\"n1\"")));
  EXPECT_EQ(Parse(lines[0]).caller().user(), "root");
  struct stat file;
  ASSERT_EQ(stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0640u);
}

TEST_F(AuditLogTest, ModeDoesNotDependOnTheUmaskAndAnOldFilesIsKept) {
  const mode_t former = umask(0077);
  Open(path());
  umask(former);
  struct stat file;
  ASSERT_EQ(stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0640u);
  log_.reset();
  ASSERT_EQ(chmod(path().c_str(), 0600), 0);
  Open(path());
  ASSERT_EQ(stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0600u);
}

TEST_F(AuditLogTest, UntrustedTextStaysOnItsLine) {
  Open(path());
  v1::AuditRecord record = Denied("a\"}\n{\"outcome\":\"AUDIT_OUTCOME_ACCEPTED\"}");
  record.set_actor("\x1b[31mred \xff\xfe");
  record.mutable_caller()->set_subject(
      "CN=\xe2\x80\xae"
      "evil");
  record.add_changes()->set_field("x\r\ny");
  record.set_reason(std::string(100000, 'r'));
  for (int i = 0; i < 1000; ++i) record.add_changes()->set_field(std::string(10000, 'f'));
  Add(record);
  const auto lines = Lines(path());
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_LT(lines[0].size(), 16384u);
  for (const char c : lines[0]) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  EXPECT_THAT(lines[0], AllOf(Not(HasSubstr("\xe2\x80\xae")), Not(HasSubstr("\xff"))));
  EXPECT_EQ(Parse(lines[0]).outcome(), v1::AUDIT_OUTCOME_DENIED);
}

TEST_F(AuditLogTest, CutTextIsWholeCharacters) {
  Open(path());
  for (int length : {254, 255, 256}) Add(Denied(std::string(static_cast<size_t>(length), 'a') + "\u00e4\u00e4"));
  for (const std::string& line : Lines(path())) Parse(line);
  EXPECT_EQ(Parse(Lines(path())[1]).job(), std::string(255, 'a'));
}

TEST_F(AuditLogTest, FileThatWasMovedAwayIsMadeAnew) {
  Open(path());
  Add(Accepted(1));
  std::filesystem::rename(path(), path() + ".1");
  Add(Accepted(2));
  std::filesystem::remove(path());
  Add(Accepted(3));
  EXPECT_EQ(Parse(Lines(path() + ".1").at(0)).to_version(), 1);
  EXPECT_THAT(Lines(path() + ".1"), SizeIs(1));
  EXPECT_EQ(Parse(Lines(path()).at(0)).to_version(), 3);
  EXPECT_EQ(log_->counts().lost, 0u);
}

TEST_F(AuditLogTest, LaterRunsAppend) {
  Open(path());
  Add(Accepted(1));
  log_.reset();
  std::ofstream(path(), std::ios::app) << "{\"half\":";
  Open(path());
  Add(Accepted(2));
  const auto lines = Lines(path());
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(Parse(lines[2]).to_version(), 2) << "behind half a line it is one of its own";
}

TEST_F(AuditLogTest, WhatIsNoFileIsRefusedAtTheStart) {
  EXPECT_THAT(OpenError(directory_ / "none/audit.log"), HasSubstr("cannot open the audit log"));
  EXPECT_THAT(OpenError("/dev/null"), HasSubstr("/dev/null is no regular file"));
  ASSERT_EQ(mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(OpenError(directory_ / "pipe"), HasSubstr("cannot open the audit log"));
  ASSERT_EQ(symlink("/etc/passwd", (directory_ / "link").c_str()), 0);
  EXPECT_THAT(OpenError(directory_ / "link"), HasSubstr("it is a symbolic link"));
}

// Where the file cannot be made again, as on a disk that is full.
TEST_F(AuditLogTest, TroubleIsToldOnceAndTheNextLineSaysWhatIsMissing) {
  const std::string folder = directory_ / "folder";
  std::filesystem::create_directory(folder);
  Open(folder + "/audit.log");
  std::filesystem::remove_all(folder);
  for (int i = 1; i <= 3; ++i) Add(Accepted(i));
  EXPECT_EQ(log_->counts().lost, 3u);
  EXPECT_EQ(log_->counts().accepted, 3u);
  std::vector<std::string> told = heard();
  const auto troubles = std::count_if(told.begin(), told.end(), [](const std::string& line) {
    return line.find("; policies change all the same") != std::string::npos;
  });
  EXPECT_EQ(troubles, 1);
  EXPECT_THAT(told, SizeIs(4)) << "each line is in the daemon's log";
  std::filesystem::create_directory(folder);
  Add(Accepted(4));
  EXPECT_EQ(heard().back(), "the audit log is written again");
  EXPECT_EQ(Parse(Lines(folder + "/audit.log").at(0)).left_out_count(), 3);
}

TEST_F(AuditLogTest, RefusalsAreFewAndChangesAll) {
  Open("");
  for (int i = 0; i < 1000; ++i) log_->Add(Denied("job"));
  for (int i = 1; i <= 200; ++i) log_->Add(Accepted(i));
  ASSERT_TRUE(log_->Flush(absl::Seconds(20)));
  EXPECT_THAT(heard(), SizeIs(AuditLog::kRefusalBurst + 200));
  EXPECT_EQ(log_->counts().denied, 1000u);
  EXPECT_EQ(log_->counts().lost, 950u);
  EXPECT_EQ(Parse(heard()[AuditLog::kRefusalBurst].substr(6)).left_out_count(), 950) << "the next line says so";
  clock_.now_ns += 2'000'000'000;
  for (int i = 0; i < 1000; ++i) log_->Add(Denied("job"));
  ASSERT_TRUE(log_->Flush(absl::Seconds(20)));
  EXPECT_THAT(heard(), SizeIs(AuditLog::kRefusalBurst + 200 + 10));
}

TEST_F(AuditLogTest, EndWritesWhatWaits) {
  Open(path());
  for (int i = 1; i <= 100; ++i) log_->Add(Accepted(i));
  log_.reset();
  EXPECT_THAT(Lines(path()), SizeIs(100));
}

}  // namespace
}  // namespace gradgate
