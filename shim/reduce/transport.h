// The collectives of one group of ranks.
//
//   Start ──► queued ──► running ──► done (ok | failed)
//
// Requests run one after another in the order of Start; all ranks start the same requests in the same order. Start never waits
// for peers. The memory of a request belongs to the transport until it is done.
//
// After one failure the group is dead: everything in flight and everything started later fails with the same status. A rank
// that fails closes its connections, so that the others fail soon and not at their deadlines.
//
// Thread class: one thread at a time, but `done` is called on a thread of the transport's.

#ifndef GRADGATE_SHIM_REDUCE_TRANSPORT_H_
#define GRADGATE_SHIM_REDUCE_TRANSPORT_H_

#include <cstdint>

#include "shim/core/status.h"

namespace gradgate {

enum class DType : uint8_t { kFloat32 = 1, kFloat64 = 2, kInt64 = 3 };
enum class ReduceOp : uint8_t { kSum = 1, kMax = 2 };

constexpr uint64_t DTypeBytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 8; }

// The n-th request started on a transport, from 1.
using Ticket = uint64_t;

struct AllReduceRequest {
  void* data = nullptr;  // element_count elements, reduced in place; every rank gets the same bytes
  uint64_t element_count = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t deadline_ns = 0;  // CLOCK_MONOTONIC; the request has failed by then
  // Called exactly once when the request is done, before Wait returns for it; no lock held; must not call the transport. Times
  // are CLOCK_MONOTONIC: of Start, and of completion. May be null.
  void (*done)(void* user, uint64_t tag, bool ok, int64_t start_ns, int64_t done_ns) = nullptr;
  void* user = nullptr;
  uint64_t tag = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t world_size() const = 0;

  // Queues an all-reduce. Does not block.
  virtual Ticket Start(const AllReduceRequest& request) = 0;

  // Waits until `ticket` and all before it are done, or until deadline_ns (CLOCK_MONOTONIC).
  // kDeadlineExceeded: not done by then (the request goes on until its own deadline). kUnavailable: a peer's connection broke
  // or timed out.
  virtual Status Wait(Ticket ticket, int64_t deadline_ns) = 0;

  // Fails everything, in flight and later, with kAborted and `reason`; closes the connections. Does not wait for peers. Twice
  // is fine.
  virtual void Abort(const char* reason) = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_TRANSPORT_H_
