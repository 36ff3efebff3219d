// The ledgers that collectives are counted into, and which of them a collective belongs to. No torch, no Python.
//
// Thread classes: Any and SetActive are lock-free; all others take the one lock here, which is a leaf: under it only the
// ledger's own wait-free functions run. A forked child gets an empty object in its place (see Instance).

#ifndef GRADGATE_SHIM_TORCH_LEDGERS_H_
#define GRADGATE_SHIM_TORCH_LEDGERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gradgate/gradgate.h"
#include "shim/core/thread_annotations.h"

namespace gradgate::tap {

using IssuedFunction = decltype(&gg_ledger_collective_issued);
using DoneFunction = decltype(&gg_ledger_collective_done);

// What a collective is, as far as it shows in its arguments.
struct Call {
  gg_op op;
  uint32_t tensors = 0;
  uint64_t bytes = 0;
  int64_t element_count = 0;
  bool real = false;  // of a floating or complex type
};

// A collective that was counted as issued; hand it to Done once.
struct Issue {
  uint64_t binding = 0;  // 0: it was not counted
  gg_group role = GG_GROUP_OTHER;
  gg_op op = 0;
  gg_traffic traffic = GG_TRAFFIC_OTHER;
  bool in_micro_step = false;
  int64_t time_ns = 0;
};

class Ledgers {
 public:
  // The process's. A fork replaces it in the child, where nothing is bound.
  static Ledgers& Instance() { return *instance_.load(std::memory_order_acquire); }

  bool Any() const { return any_.load(std::memory_order_relaxed); }

  // Setup calls. `ledger` identifies; Bind of one that is bound begins anew.
  void Bind(gg_ledger* ledger, IssuedFunction issued, DoneFunction done) GG_EXCLUDES(mutex_);
  void Unbind(gg_ledger* ledger) GG_EXCLUDES(mutex_);  // when it returns nothing more reaches the ledger
  // One group may have several roles: FSDP and an unwrapped part may use the same. False: not bound.
  bool SetRole(gg_ledger* ledger, const std::string& group, gg_group role) GG_EXCLUDES(mutex_);
  void SetOurs(const std::string& group) GG_EXCLUDES(mutex_);
  bool SetSizes(gg_ledger* ledger, std::vector<int64_t> sizes, bool any_size) GG_EXCLUDES(mutex_);
  void Arm(gg_ledger* ledger, bool armed) GG_EXCLUDES(mutex_);  // stop before its next gradient collective, once

  // The ledger whose micro-step is open, or null. One relaxed store.
  void SetActive(gg_ledger* ledger) { active_.store(ledger, std::memory_order_relaxed); }

  // Counts a collective. `reducing`: asked only where it matters, whether this thread is inside a backward or late.
  // *stop is set where the ledger was armed: nothing was counted, the caller fires its callback and calls again with stop =
  // null.
  Issue Issued(const std::string& group, const Call& call, bool (*reducing)(), gg_ledger** stop) GG_EXCLUDES(mutex_);

  // Dropped if the ledger was unbound meanwhile.
  void Done(const Issue& issue, gg_outcome outcome) GG_EXCLUDES(mutex_);

  bool Bound(uint64_t binding) GG_EXCLUDES(mutex_);

 private:
  struct Binding {
    uint64_t id;
    gg_ledger* ledger;
    IssuedFunction issued;
    DoneFunction done;
    std::vector<int64_t> sizes;  // sorted
    bool any_size = true;
    bool armed = false;
  };
  struct Group {
    bool ours = false;
    std::vector<std::pair<gg_ledger*, gg_group>> roles;
  };

  static void ReplaceInChild();
  static bool Watch();

  Binding* Find(gg_ledger* ledger) GG_REQUIRES(mutex_);
  Binding* Choose(const Group* group, gg_op op, gg_group* role) GG_REQUIRES(mutex_);
  static bool IsGradient(const Binding& binding, gg_group role, const Call& call, bool (*reducing)());

  static std::atomic<Ledgers*> instance_;
  static const bool watching_fork_;

  std::atomic<bool> any_{false};
  std::atomic<gg_ledger*> active_{nullptr};
  Mutex mutex_;
  std::vector<Binding> bindings_ GG_GUARDED_BY(mutex_);  // in order of binding
  std::unordered_map<std::string, Group> groups_ GG_GUARDED_BY(mutex_);
  uint64_t last_id_ GG_GUARDED_BY(mutex_) = 0;
};

}  // namespace gradgate::tap

#endif  // GRADGATE_SHIM_TORCH_LEDGERS_H_
