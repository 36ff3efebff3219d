// One rank's session: the window engine's decisions carried out over the reducer, counted on the stats page, told to the
// daemon. The C++ side of gradgate.h, where each call is described.
//
// A window is one or more rounds (rounds.h). Where every micro-step reduces, each is a round and the rank waits for it in
// EndMicroStep; else the boundary micro-step starts the window's only round and BeforeStep waits for it. A rank that closes
// earlier than others takes part in their rounds, with what it has accumulated, until all have closed.
//
// Thread class: loop's thread, except page() (any).

#ifndef GRADGATE_SHIM_CAPI_SESSION_H_
#define GRADGATE_SHIM_CAPI_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/shm/types.h"
#include "shim/capi/closed_window.h"
#include "shim/capi/member.h"
#include "shim/capi/rounds.h"
#include "shim/core/status.h"
#include "shim/core/window_engine.h"
#include "shim/core/window_timer.h"
#include "shim/reduce/reducer.h"
#include "shim/reduce/transport.h"

namespace gradgate {

enum class Divide : uint8_t { kWorld = 0, kActive = 1, kItems = 2, kNone = 3 };

struct SessionOptions : MemberOptions {
  Divide divide = Divide::kWorld;
  std::vector<std::string> tensor_names;
  std::vector<GradientTensor> tensors;
  Transport* transport = nullptr;  // borrowed; required when world_size > 1
  uint64_t bucket_bytes = 0;
};

class Session {
 public:
  static Status Create(SessionOptions options, std::unique_ptr<Session>* out);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Status BeginMicroStep(Last last, int64_t items, bool* boundary);
  Status GradientReady(uint32_t tensor);
  Status EndMicroStep();
  Status AbandonMicroStep();
  Status BeforeStep(ClosedWindow* report);
  Status Flush(uint32_t divisor, bool* flushed, ClosedWindow* report);
  Status Close();

  const Reducer& reducer() const { return reducer_; }
  const PolicyStage& stage() const { return member_->stage(); }
  const page::StatsPage& page() const { return member_->page(); }
  bool linked() const { return member_->linked(); }
  bool forked() const { return member_->forked(); }

 private:
  explicit Session(SessionOptions options);

  Status Join();
  Status CheckUsable() const;
  Status Refused(const Decision& decision);
  RoundInput NextRound(bool contributes, bool closes, uint32_t divisor);
  double Divisor(int64_t items, int64_t active_ranks) const;
  Status FinishRound();
  Status FinishWindow(uint32_t divisor, bool stepping, ClosedWindow* report);
  Status ReduceToTheEnd(uint32_t divisor);
  Status ScaleAtClose(uint32_t divisor);
  Status CheckDivisor(uint32_t divisor) const;
  void CountMicroStepEnd(int64_t now_ns);
  void CloseWindow(bool stepped, bool failed, ClosedWindow* report);
  page::WindowRecord MakeRecord(const WindowCounts& counts, WindowKind kind) const;
  uint32_t IntendedReductions(uint32_t max_micro_steps) const;
  Status FailWindow(Status status);
  PolicyRejection Vet(const SyncPolicy& policy) const;
  void TakeUp(const SyncPolicy& policy);

  SyncMode mode_in_force() const { return every_micro_step() ? SyncMode::kEveryMicroStep : mode_; }
  bool every_micro_step() const { return engine_.config().every_micro_step; }

  // What is known of the open window beyond the engine's counts.
  struct OpenWindow {
    uint32_t rounds = 0;
    uint32_t min_micro_steps = 0;
    uint32_t max_micro_steps = 0;
    uint32_t min_divisor = 0;  // of the last round
    uint32_t max_divisor = 0;
    bool all_closed = false;
    bool disagreed = false;
    bool contributed = false;
    bool reduced = false;
    int64_t items = 0;         // this rank's
    int64_t items_untold = 0;  // of those, not yet part of a round
    int64_t global_items = 0;
    int64_t active_ranks = 0;
  };

  const SessionOptions o_;
  SyncMode mode_;  // these three: as given, or as the policy in force has it
  Enforcement enforcement_;
  uint64_t bucket_bytes_;
  WindowEngine engine_;
  Reducer reducer_;
  std::unique_ptr<Member> member_;
  std::unique_ptr<Rounds> rounds_;  // null in a world of one
  WindowTimer timer_;
  OpenWindow window_;
  int64_t micro_step_items_ = 0;
  bool closed_ = false;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CAPI_SESSION_H_
