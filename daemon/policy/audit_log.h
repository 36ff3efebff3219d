// The audit log: a line of JSON for each change of a policy, and for each try, to the daemon's log and, if asked, to a file.
//
//   Add ──► queue (bounded) ──► its thread ──► log line, and file
//
// The file is only ever appended to, a line by one write. Before that its path is looked at: a file that was moved away or
// removed is made anew (mode 0640). What cannot be written is counted, told once until it works again, and changes nothing
// else. Refusals beyond kMaxRefusals a second on average are left out; the next line says how many. What was accepted is always
// told.
//
// Thread class: any thread. One lock, a leaf, not held while writing. The destructor writes what waits.

#ifndef GRADGATE_DAEMON_POLICY_AUDIT_LOG_H_
#define GRADGATE_DAEMON_POLICY_AUDIT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "daemon/node/clock.h"
#include "daemon/node/mutex.h"
#include "daemon/policy/audit_file.h"
#include "gradgate/v1/audit.pb.h"

namespace gradgate {

struct AuditCounts {
  uint64_t accepted = 0;
  uint64_t rejected = 0;
  uint64_t denied = 0;
  uint64_t lost = 0;  // left out, or not written
};

class AuditLog {
 public:
  using LogLine = std::function<void(absl::string_view)>;
  static constexpr double kMaxRefusals = 5;  // a second
  static constexpr size_t kRefusalBurst = 50;
  static constexpr size_t kMaxWaiting = 1024;

  // `path` empty: no file. Errors as AuditFile::Open. `log` is called on the log's thread; `clock` is not owned.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path, std::string node_name, LogLine log,
                                                        const Clock* clock);
  ~AuditLog();

  // Time, user name and node are filled in. Text is made printable, and cut. Does not block.
  void Add(v1::AuditRecord record);

  // Waits until what was added before has been written, or could not be. False: the deadline was first.
  bool Flush(absl::Duration longest);

  AuditCounts counts();

 private:
  AuditLog(AuditFile file, std::string node_name, LogLine log, const Clock* clock);

  void Run();
  void Write(v1::AuditRecord record);
  void Count(v1::AuditOutcome outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayTell(const v1::AuditRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string node_name_;
  const LogLine log_;
  const Clock* const clock_;
  AuditFile file_;             // the thread's
  bool told_trouble_ = false;  // likewise

  Mutex mutex_;
  CondVar changed_;
  std::deque<v1::AuditRecord> waiting_ ABSL_GUARDED_BY(mutex_);
  uint64_t added_count_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t done_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t left_out_count_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last line
  double tokens_ ABSL_GUARDED_BY(mutex_) = kRefusalBurst;
  int64_t refilled_at_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  AuditCounts counts_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_POLICY_AUDIT_LOG_H_
