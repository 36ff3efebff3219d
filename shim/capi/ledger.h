// One rank's ledger: the window engine's decisions and the counts of what a framework issues, published and told to the daemon.
// The C++ side of gradgate.h's ledger, where each call is described; the owner issues what the ledger decides.
//
// Thread class: loop's thread, except counts(), page() (any) and Vote (also the thread of a backward that the loop waits for).

#ifndef GRADGATE_SHIM_CAPI_LEDGER_H_
#define GRADGATE_SHIM_CAPI_LEDGER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "proto/shm/types.h"
#include "shim/capi/closed_window.h"
#include "shim/capi/ledger_counts.h"
#include "shim/capi/member.h"
#include "shim/core/ballot.h"
#include "shim/core/status.h"
#include "shim/core/window_engine.h"
#include "shim/core/window_timer.h"

namespace gradgate {

// Checked and resolved: see gg_ledger_options. accumulate 0: not declared.
struct LedgerOptions : MemberOptions {
  uint32_t roles = 0;  // bits by GroupRole
  Facts facts;
};

// See gg_window_end.
struct LedgerWindowEnd {
  bool stepped = false;
  bool failed = false;
  bool discarded = false;
  bool disagreed = false;
  uint32_t min_micro_steps = 0;
  uint32_t max_micro_steps = 0;
  uint32_t active_ranks = 0;
  uint32_t skipped = 0;
  int64_t items = 0;
  int64_t global_items = 0;
  int64_t wait_ns = 0;
};

class Ledger {
 public:
  static Status Create(LedgerOptions options, std::unique_ptr<Ledger>* out);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  Status BeginMicroStep(Last last, bool* closes);
  Status EndMicroStep();
  Status AbandonMicroStep();

  // Fills in where this rank is. `ballot` comes with what the owner says.
  Status Vote(Ballot ballot, std::array<int64_t, Ballot::kWords>* words);
  Status Arrived();
  // The result of the ballot that was voted last.
  void Read(const BallotResult& result);
  Status Missing(std::string* who);
  Status Fail(const std::string& why);

  Status LateBegin();
  Status CloseWindow(const LedgerWindowEnd& end, ClosedWindow* report);
  Status SetMode(SyncMode mode);
  Status Predict(uint32_t micro_steps);
  Status DeclareExtra(GroupRole role, uint32_t count);
  Status Warn(const char* reason, const std::string& message);
  Status Close();

  const LedgerOptions& options() const { return o_; }
  const WindowEngine& engine() const { return engine_; }
  SyncMode mode_in_force() const { return engine_.config().every_micro_step ? SyncMode::kEveryMicroStep : policy_; }
  Enforcement enforcement() const { return enforcement_; }
  // The owner answers what is unvetted, and takes up what is in force but for the enforcement.
  const PolicyStage& stage() const { return member_->stage(); }
  Status AnswerPolicy(uint64_t version, PolicyRejection rejection);
  LedgerCounts& counts() { return *counts_; }
  const LedgerCounts& counts() const { return *counts_; }
  const page::StatsPage& page() const { return member_->page(); }
  bool linked() const { return member_->linked(); }
  bool forked() const { return member_->forked(); }

 private:
  explicit Ledger(LedgerOptions options);

  // Of the open window, beyond the engine's counts and what was issued.
  struct OpenWindow {
    std::array<uint32_t, kGroupRoleCount> suppressed{};
    std::array<uint32_t, kGroupRoleCount> extra{};         // declared
    std::array<uint32_t, kGroupRoleCount> extra_unseen{};  // of those, not met yet
    uint32_t ballots = 0;
    uint32_t last_reduction_at = 0;
  };

  Status CheckUsable() const;
  Status Refused(Refusal refusal);
  uint32_t WantedRoles(bool closes) const;
  uint32_t IntendedReductions(GroupRole role, uint32_t max_micro_steps) const;
  void LeavePhase();
  void CountOverrides(uint32_t unwanted, Phase phase);
  void Outrun();
  void CountSuppressed();
  page::WindowRecord MakeRecord(const LedgerWindowEnd& end, const LedgerCounts::Window& issued) const;
  bool CountReductions(const LedgerWindowEnd& end, const LedgerCounts::Window& issued, page::WindowRecord* record);
  bool PublishWindow(const LedgerWindowEnd& end, ClosedWindow* report);
  uint64_t round() const { return window_.ballots > 0 ? window_.ballots - 1 : 0; }

  const LedgerOptions o_;
  const uint32_t roles_;     // none in a world of one
  SyncMode policy_;          // never kAuto
  Enforcement enforcement_;  // as given, or as the policy in force has it
  WindowEngine engine_;
  std::unique_ptr<Member> member_;
  std::unique_ptr<LedgerCounts> counts_;
  WindowTimer timer_;
  OpenWindow window_;
  bool closed_ = false;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CAPI_LEDGER_H_
