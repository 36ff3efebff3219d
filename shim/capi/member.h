// One rank as its job and its node see it: what sessions and ledgers share. The handshake, the stats page, the link to the
// daemon, the arrival board, the fork guard, and warnings that are told once.
//
// Thread class: loop's thread, except page() and linked() (any). Nothing but Join and Leave blocks.

#ifndef GRADGATE_SHIM_CAPI_MEMBER_H_
#define GRADGATE_SHIM_CAPI_MEMBER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/shm/types.h"
#include "shim/core/policy_stage.h"
#include "shim/core/status.h"
#include "shim/link/fork_guard.h"
#include "shim/link/link.h"
#include "shim/reduce/arrival_board.h"
#include "shim/reduce/handshake.h"
#include "shim/reduce/store.h"
#include "shim/stats/recorder.h"

namespace gradgate {

// What names of jobs are made of: at most kMaxJobNameBytes of printable ASCII, spaces included, without '/' and '='.
inline constexpr size_t kMaxJobNameBytes = 127;
constexpr bool InJobName(char c) { return c >= 0x20 && c <= 0x7e && c != '/' && c != '='; }

// Checked and resolved: see gg_session_options.
struct MemberOptions {
  uint32_t accumulate = 1;
  SyncMode mode = SyncMode::kWindow;
  Enforcement enforcement = Enforcement::kEnforce;
  bool variable_windows = false;
  bool strict = false;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t local_rank = 0;
  uint32_t attempt = 0;
  std::string job_name;
  bool named_by_program = false;  // then all take rank 0's
  std::string store_prefix;
  Store* store = nullptr;                // borrowed; required when world_size > 1
  std::vector<std::string> daemon_dirs;  // empty: no link
  int64_t deadline_ns = 0;
  int64_t handshake_deadline_ns = 0;
  void (*log)(void* user, uint32_t severity, const char* reason, const char* message) = nullptr;
  void* log_user = nullptr;
};

// What must be equal on all ranks, in one order.
using Facts = std::vector<std::pair<std::string, std::string>>;
Facts CommonFacts(const MemberOptions& options);

// Of a deadline, what is kept for finding out who is missing.
int64_t NamingBudget(int64_t deadline_ns);

// Whether each micro-step is to reduce, under what is in force.
bool EveryMicroStep(Enforcement enforcement, SyncMode mode);

class Member {
 public:
  // Shakes hands with all ranks, then makes the page and looks for the daemon. `in_force`: the mode of the first window.
  // Errors: Handshake's.
  static Status Join(const MemberOptions& options, const Facts& facts, SyncMode in_force, std::unique_ptr<Member>* out);
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  Recorder& recorder() { return *recorder_; }
  page::StatsPage& page() { return recorder_->page(); }
  const page::StatsPage& page() const { return recorder_->page(); }
  ArrivalBoard* board() { return board_.get(); }  // null in a world of one
  bool forked() const { return guard_->forked(); }
  bool linked() const { return link_ && link_->welcomed(); }

  // Counts a warning, and tells the first of each reason.
  void Warn(const char* reason, const std::string& message);

  // What every micro-step does to the page. `micro_step` counts from 1.
  void MicroStepBegun(uint32_t micro_step, int64_t now_ns);
  void MicroStepEnded(uint32_t micro_step, uint64_t duration_ns, int64_t now_ns);

  // How a window ended, beyond its record.
  struct WindowEnd {
    bool late = false;
    bool mismatched = false;
    bool disagreed = false;
    bool stepped = false;
    bool failed = false;
    bool discarded = false;
    bool over = false;  // no window follows: collectives failed, and may still be under way
  };
  // Sets the record's flags, counts the window and publishes it; takes up the policy that its ballots agreed on, and reads what
  // the daemon has sent. True if a policy is in force now that was not.
  bool WindowClosed(page::WindowRecord record, const WindowEnd& end);

  // Where this rank is with policies. The owner answers what is unvetted, then publishes, and votes with every ballot.
  PolicyStage& stage() { return stage_; }
  const PolicyStage& stage() const { return stage_; }
  // The page tells what is in force.
  void PublishMode(SyncMode in_force, Enforcement enforcement);
  void AnswerPolicy(PolicyRejection rejection);  // of what is unvetted; kNone: this rank can carry it out

  // The rank ends: the page says so, the daemon is told, and the other ranks why, unless it failed.
  void Leave(bool failed, uint64_t window, const char* why);
  // As Leave, for a rank that ends without having said so: the socket closes without a goodbye.
  void LeaveUnsaid(uint64_t window, const char* why);

 private:
  explicit Member(const MemberOptions& options)
      : alone_(options.world_size == 1), given_(options.enforcement), log_(options.log), log_user_(options.log_user) {}
  void Publish(const MemberOptions& options, const Facts& facts, SyncMode in_force, const AgreedIds& ids);
  void PublishPolicy();

  const bool alone_;
  const Enforcement given_;
  void (*const log_)(void* user, uint32_t severity, const char* reason, const char* message);
  void* const log_user_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<ForkGuard> guard_;  // of the page
  std::unique_ptr<ArrivalBoard> board_;
  std::unique_ptr<Link> link_;
  std::set<std::string> told_;
  PolicyStage stage_;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CAPI_MEMBER_H_
