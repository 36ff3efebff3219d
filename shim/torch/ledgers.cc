#include "shim/torch/ledgers.h"

#include <pthread.h>

#include <algorithm>

namespace gradgate::tap {

// Never freed: collectives complete on threads that outlive static destructors.
std::atomic<Ledgers*> Ledgers::instance_{new Ledgers};
const bool Ledgers::watching_fork_ = Ledgers::Watch();

bool Ledgers::Watch() { return pthread_atfork(nullptr, nullptr, &Ledgers::ReplaceInChild) == 0; }

// The parent's object may be locked by a thread that the child does not have, so it is left alone.
void Ledgers::ReplaceInChild() { instance_.store(new Ledgers, std::memory_order_release); }

Ledgers::Binding* Ledgers::Find(gg_ledger* ledger) {
  const auto found = std::find_if(bindings_.begin(), bindings_.end(), [=](const Binding& b) { return b.ledger == ledger; });
  return found == bindings_.end() ? nullptr : &*found;
}

void Ledgers::Bind(gg_ledger* ledger, IssuedFunction issued, DoneFunction done) {
  Unbind(ledger);
  MutexLock lock(mutex_);
  bindings_.push_back({++last_id_, ledger, issued, done, {}});
  any_.store(true, std::memory_order_relaxed);
}

void Ledgers::Unbind(gg_ledger* ledger) {
  MutexLock lock(mutex_);
  bindings_.erase(std::remove_if(bindings_.begin(), bindings_.end(), [=](const Binding& b) { return b.ledger == ledger; }),
                  bindings_.end());
  for (auto group = groups_.begin(); group != groups_.end();) {
    auto& roles = group->second.roles;
    roles.erase(std::remove_if(roles.begin(), roles.end(), [=](const auto& r) { return r.first == ledger; }), roles.end());
    group = roles.empty() && !group->second.ours ? groups_.erase(group) : std::next(group);
  }
  gg_ledger* expected = ledger;
  active_.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);
  any_.store(!bindings_.empty(), std::memory_order_relaxed);
}

bool Ledgers::SetRole(gg_ledger* ledger, const std::string& group, gg_group role) {
  MutexLock lock(mutex_);
  if (Find(ledger) == nullptr) return false;
  auto& roles = groups_[group].roles;
  const std::pair added{ledger, role};
  if (std::find(roles.begin(), roles.end(), added) == roles.end()) roles.push_back(added);
  return true;
}

void Ledgers::SetOurs(const std::string& group) {
  MutexLock lock(mutex_);
  groups_[group].ours = true;
}

bool Ledgers::SetSizes(gg_ledger* ledger, std::vector<int64_t> sizes, bool any_size) {
  std::sort(sizes.begin(), sizes.end());
  MutexLock lock(mutex_);
  Binding* binding = Find(ledger);
  if (binding == nullptr) return false;
  binding->sizes = std::move(sizes);
  binding->any_size = any_size;
  return true;
}

void Ledgers::Arm(gg_ledger* ledger, bool armed) {
  MutexLock lock(mutex_);
  if (Binding* binding = Find(ledger)) binding->armed = armed;
}

namespace {

// Whether an operation of this kind carries gradients in a group of that role.
bool Reduces(gg_op op, gg_group role) {
  return (op == GG_OP_ALL_REDUCE && (role == GG_GROUP_DP || role == GG_GROUP_REPLICATE)) ||
         (op == GG_OP_REDUCE_SCATTER && role == GG_GROUP_SHARD);
}

}  // namespace

Ledgers::Binding* Ledgers::Choose(const Group* group, gg_op op, gg_group* role) {
  *role = GG_GROUP_OTHER;
  if (group != nullptr && !group->roles.empty()) {
    const auto& roles = group->roles;
    gg_ledger* ledger = active_.load(std::memory_order_relaxed);
    if (std::none_of(roles.begin(), roles.end(), [=](const auto& r) { return r.first == ledger; }))
      ledger = roles.front().first;
    const auto first = std::find_if(roles.begin(), roles.end(), [=](const auto& r) { return r.first == ledger; });
    const auto fits =
        std::find_if(first, roles.end(), [=](const auto& r) { return r.first == ledger && Reduces(op, r.second); });
    *role = (fits == roles.end() ? first : fits)->second;
    return Find(ledger);
  }
  return bindings_.empty() ? nullptr : &bindings_.front();
}

bool Ledgers::IsGradient(const Binding& binding, gg_group role, const Call& call, bool (*reducing)()) {
  if (!Reduces(call.op, role) || !call.real || !reducing()) return false;
  return binding.any_size || std::binary_search(binding.sizes.begin(), binding.sizes.end(), call.element_count);
}

Issue Ledgers::Issued(const std::string& group, const Call& call, bool (*reducing)(), gg_ledger** stop) {
  MutexLock lock(mutex_);
  const auto known = groups_.find(group);
  const Group* const found = known == groups_.end() ? nullptr : &known->second;
  Issue issue;
  Binding* const binding = Choose(found, call.op, &issue.role);
  if (binding == nullptr) return issue;
  if (found != nullptr && found->ours) {
    issue.traffic = GG_TRAFFIC_OURS;
  } else if (IsGradient(*binding, issue.role, call, reducing)) {
    issue.traffic = GG_TRAFFIC_GRADIENT;
    if (binding->armed && stop != nullptr) {
      binding->armed = false;
      *stop = binding->ledger;
      return issue;
    }
  }
  issue.binding = binding->id;
  issue.op = call.op;
  issue.in_micro_step = active_.load(std::memory_order_relaxed) != nullptr;
  issue.time_ns = binding->issued(binding->ledger, issue.role, call.op, issue.traffic, call.bytes, call.tensors);
  return issue;
}

void Ledgers::Done(const Issue& issue, gg_outcome outcome) {
  if (issue.binding == 0) return;
  MutexLock lock(mutex_);
  for (const Binding& binding : bindings_) {
    if (binding.id == issue.binding) {
      binding.done(binding.ledger, issue.role, issue.op, issue.traffic, issue.time_ns, outcome);
      return;
    }
  }
}

bool Ledgers::Bound(uint64_t binding) {
  MutexLock lock(mutex_);
  return std::any_of(bindings_.begin(), bindings_.end(), [=](const Binding& b) { return b.id == binding; });
}

}  // namespace gradgate::tap
