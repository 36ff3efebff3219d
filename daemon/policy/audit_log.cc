#include "daemon/policy/audit_log.h"

#include <pwd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "daemon/node/text_check.h"
#include "google/protobuf/util/json_util.h"

namespace gradgate {
namespace {

constexpr size_t kMaxTextBytes = 256;
constexpr size_t kMaxReasonBytes = 1024;
constexpr int kMaxChanges = 32;

// Printable, and at most so many bytes of whole characters.
void MakePresentable(std::string* text_untrusted, size_t max_bytes) {
  if (!IsPrintableUtf8(*text_untrusted)) *text_untrusted = absl::CHexEscape(text_untrusted->substr(0, max_bytes));
  if (text_untrusted->size() <= max_bytes) return;
  size_t bytes = max_bytes;
  while (bytes > 0 && ((*text_untrusted)[bytes] & 0xc0) == 0x80) --bytes;
  text_untrusted->resize(bytes);
}

// Asks whatever the system is told to ask, which may take its time.
std::string UserName(uint32_t uid) {
  passwd entry{}, *found = nullptr;
  std::array<char, 4096> buffer{};
  (void)getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? "" : found->pw_name;
}

std::string ToLine(v1::AuditRecord record) {
  for (std::string* text :
       {record.mutable_caller()->mutable_user(), record.mutable_caller()->mutable_subject(),
        record.mutable_caller()->mutable_role(), record.mutable_caller()->mutable_address(), record.mutable_actor(),
        record.mutable_method(), record.mutable_job(), record.mutable_run_id(), record.mutable_node_name()}) {
    MakePresentable(text, kMaxTextBytes);
  }
  MakePresentable(record.mutable_reason(), kMaxReasonBytes);
  if (record.changes_size() > kMaxChanges) {
    record.mutable_changes()->DeleteSubrange(kMaxChanges, record.changes_size() - kMaxChanges);
  }
  for (v1::AuditChange& change : *record.mutable_changes()) {
    for (std::string* text : {change.mutable_field(), change.mutable_from(), change.mutable_to()}) {
      MakePresentable(text, kMaxTextBytes);
    }
  }
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string line;
  (void)google::protobuf::util::MessageToJsonString(record, &line, options);  // fails for nothing that was made printable
  return line;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path, std::string node_name, LogLine log,
                                                         const Clock* clock) {
  AuditFile file;
  if (!path.empty()) {
    absl::StatusOr<AuditFile> opened = AuditFile::Open(path);
    if (!opened.ok()) return opened.status();
    file = *std::move(opened);
  }
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(file), std::move(node_name), std::move(log), clock));
}

AuditLog::AuditLog(AuditFile file, std::string node_name, LogLine log, const Clock* clock)
    : node_name_(std::move(node_name)), log_(std::move(log)), clock_(clock), file_(std::move(file)), thread_([this] {
        Run();
      }) {}

AuditLog::~AuditLog() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void AuditLog::Count(v1::AuditOutcome outcome) {
  if (outcome == v1::AUDIT_OUTCOME_ACCEPTED) ++counts_.accepted;
  if (outcome == v1::AUDIT_OUTCOME_REJECTED) ++counts_.rejected;
  if (outcome == v1::AUDIT_OUTCOME_DENIED) ++counts_.denied;
}

// What changed something always; of the rest as many as the bucket has.
bool AuditLog::MayTell(const v1::AuditRecord& record) {
  if (record.outcome() == v1::AUDIT_OUTCOME_ACCEPTED && record.action() != v1::AUDIT_ACTION_TRIAL) return true;
  const auto now_ns = static_cast<int64_t>(clock_->MonotonicNs());
  const double passed_s = static_cast<double>(now_ns - refilled_at_ns_) / 1e9;
  tokens_ = std::min(static_cast<double>(kRefusalBurst), tokens_ + passed_s * kMaxRefusals);
  refilled_at_ns_ = now_ns;
  if (tokens_ < 1 || waiting_.size() >= kMaxWaiting) return false;
  tokens_ -= 1;
  return true;
}

void AuditLog::Add(v1::AuditRecord record) {
  const timespec now = absl::ToTimespec(clock_->Now());
  record.mutable_time()->set_seconds(now.tv_sec);
  record.mutable_time()->set_nanos(static_cast<int32_t>(now.tv_nsec));
  record.set_node_name(node_name_);
  MutexLock lock(&mutex_);
  Count(record.outcome());
  if (!MayTell(record)) {
    ++left_out_count_;
    ++counts_.lost;
    return;
  }
  record.set_left_out_count(std::exchange(left_out_count_, 0));
  waiting_.push_back(std::move(record));
  ++added_count_;
  changed_.NotifyAll();
}

bool AuditLog::Flush(absl::Duration longest) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(longest);
  MutexLock lock(&mutex_);
  const uint64_t wanted = added_count_;
  while (done_count_ < wanted) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    changed_.WaitUntil(&mutex_, deadline);
  }
  return true;
}

AuditCounts AuditLog::counts() {
  MutexLock lock(&mutex_);
  return counts_;
}

void AuditLog::Run() {
  while (true) {
    v1::AuditRecord record;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !ending_) changed_.WaitFor(&mutex_, std::chrono::minutes(1));
      if (waiting_.empty()) return;
      record = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Write(std::move(record));
    MutexLock lock(&mutex_);
    ++done_count_;
    changed_.NotifyAll();
  }
}

void AuditLog::Write(v1::AuditRecord record) {
  if (record.caller().has_uid()) record.mutable_caller()->set_user(UserName(record.caller().uid()));
  const int64_t left_out_count = record.left_out_count();
  const std::string line = ToLine(std::move(record));
  log_(absl::StrCat("audit ", line));
  const absl::Status written = file_.Append(line);
  if (written.ok()) {
    if (std::exchange(told_trouble_, false)) log_("the audit log is written again");
    return;
  }
  if (!std::exchange(told_trouble_, true)) {
    log_(absl::StrCat(written.message(), "; policies change all the same, and their lines are in this log alone"));
  }
  MutexLock lock(&mutex_);
  ++counts_.lost;
  left_out_count_ += left_out_count + 1;  // the file's next line tells of those as well
}

}  // namespace gradgate
