// How one rank takes up a policy: with all ranks at the same window, or not at all. A pure state machine; no clock, socket or
// peer.
//
//   Offered ──► unvetted ──Accept──► staged ──Vote … Read: all ranks have it──► agreed ──WindowClosed──► in force
//                   │                  ▲ │
//                   └─Reject─► (none)  └─┘ Read: some rank has another or none; voted for again
//
// The rules, each of which the others lean on:
//   - A vote stands until it is read: what is accepted in between waits for the next ballot.
//   - Version and content hash must be equal on all ranks.
//   - Only a version above the one in force is staged, so that a daemon with an old or empty store takes nothing back.
//   - What was agreed takes effect with the next window, never inside the one whose ballot agreed on it, and nothing replaces
//   it before.
//
// Every rank reads the same minimum and maximum, so every rank agrees on the same, at the same ballot.
//
// Thread class: one thread at a time; Vote and Read may be another than the rest. Nothing allocates.

#ifndef GRADGATE_SHIM_CORE_POLICY_STAGE_H_
#define GRADGATE_SHIM_CORE_POLICY_STAGE_H_

#include <cstdint>

#include "proto/shm/types.h"

namespace gradgate {

// What a job is to do; unspecified and zero: as this rank was given.
struct SyncPolicy {
  uint64_t version = 0;       // 0: none was ever adopted
  uint64_t content_hash = 0;  // link::PolicyContentHash
  uint64_t bucket_bytes = 0;
  SyncMode sync_mode = SyncMode::kUnspecified;
  WireType wire_type = WireType::kUnspecified;
  Reshard reshard = Reshard::kUnspecified;
  Enforcement enforcement = Enforcement::kUnspecified;
};

// Whether this shim knows every value of it; if not, no rank of this version can carry it out.
bool KnownPolicy(const SyncPolicy& policy);

class PolicyStage {
 public:
  // What a rank says in a ballot; zeros: it has nothing staged.
  struct Ticket {
    int64_t version = 0;
    int64_t content_hash = 0;
    bool operator==(const Ticket&) const = default;
  };

  // A policy has come. False, and nothing changed, if it is not above what is in force, staged, unvetted or rejected.
  bool Offered(const SyncPolicy& policy);

  // The owner has looked at `unvetted` and can carry it out, or not.
  void Accept();
  void Reject(PolicyRejection why);

  Ticket Vote();
  // Its result: minimum and maximum over all ranks. One ballot at a time, read before the window that it belongs to is closed.
  void Read(Ticket min, Ticket max);

  // The window has ended and the next has not begun. True if a policy is in force now that was not.
  bool WindowClosed(uint64_t next_window, bool alone);

  const SyncPolicy& in_force() const { return in_force_; }
  uint64_t adopted_window() const { return adopted_window_; }
  // version 0: none.
  const SyncPolicy& unvetted() const { return unvetted_; }
  const SyncPolicy& staged() const { return staged_; }
  // Of what is accepted and not in force; 0: none.
  uint64_t waiting_version() const { return accepted_.version != 0 ? accepted_.version : staged_.version; }
  uint64_t rejected_version() const { return rejected_version_; }
  PolicyRejection rejection() const { return rejection_; }

 private:
  SyncPolicy in_force_;
  SyncPolicy staged_;    // voted for
  SyncPolicy accepted_;  // becomes staged when no vote is unread
  SyncPolicy unvetted_;
  uint64_t adopted_window_ = 0;
  uint64_t rejected_version_ = 0;
  PolicyRejection rejection_ = PolicyRejection::kNone;
  bool vote_unread_ = false;
  bool agreed_ = false;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CORE_POLICY_STAGE_H_
