// The handshake: all ranks of a job find each other through the rendezvous store and check that they run the same thing, before
// any collective. Never a collective itself: a rank without a shim would pair it with one of its own.
//
//   every rank   writes <prefix>hello/<rank>
//   rank 0       reads all hellos, compares, writes <prefix>verdict: "ok" and both ids, or who differs in what, or who is
//   missing other ranks  wait for the verdict; at their deadline they look themselves for who is missing
//
// Thread class: setup only; blocks until the deadline at most.

#ifndef GRADGATE_SHIM_REDUCE_HANDSHAKE_H_
#define GRADGATE_SHIM_REDUCE_HANDSHAKE_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shim/core/status.h"
#include "shim/reduce/store.h"

namespace gradgate {

struct HandshakeOptions {
  Store* store = nullptr;
  std::string prefix;  // distinguishes jobs, attempts and sessions on one store
  uint32_t rank = 0;
  uint32_t world_size = 1;
  // Name and value of everything that must be equal on all ranks, in one order: "abi", "accumulate", … Neither holds '=' or a
  // newline.
  std::vector<std::pair<std::string, std::string>> facts;
  std::array<uint8_t, 16> run_id{};     // rank 0's is taken by all
  std::array<uint8_t, 16> launch_id{};  // so is this
  int64_t timeout_ns = 0;
};

struct AgreedIds {
  std::array<uint8_t, 16> run_id{};
  std::array<uint8_t, 16> launch_id{};
};

// On success *ids are rank 0's. kDeadlineExceeded: "no gradgate on ranks [1] within 3.0 s". kAborted: "ranks differ: rank 2
// has accumulate=8 where rank 0 has 4". kFailedPrecondition: the store
// holds this rank of another run. kUnavailable: the store does not answer.
Status Handshake(const HandshakeOptions& options, AgreedIds* ids);

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_HANDSHAKE_H_
