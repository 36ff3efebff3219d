// The kernel on BackendSelect, the last key before a backend's: everything reaches it once, whatever modes, wrappers and
// autograd lie above. It counts, redispatches, and has the completion watched.
//
//   registered ──bound ledger──► counting;  unbound: one relaxed load, then on to the backend

#ifndef GRADGATE_SHIM_TORCH_KERNEL_H_
#define GRADGATE_SHIM_TORCH_KERNEL_H_

#include <string>

#include "gradgate/gradgate.h"

namespace gradgate::tap {

// Where an operator has what; positions count its arguments, -1: none.
struct Operator {
  std::string name;      // as the dispatcher has it
  std::string overload;  // "" for the default
  gg_op op;
  int group;
  int payload;
};

// Registers the kernel for the life of the process. False: the operator has a kernel of somebody else's on this key, and is
// left alone. Throws what torch throws. Setup only.
bool Register(const Operator& operation);

// Called on the issuing thread before the first gradient collective of an armed ledger, no lock held; it may issue collectives.
// Must not throw. Setup only, before the first ledger is bound.
void SetFirstGradientCallback(void (*callback)(gg_ledger* ledger));

// Whether gradient collectives of this thread are such outside a backward, too.
void SetLate(bool late);

}  // namespace gradgate::tap

#endif  // GRADGATE_SHIM_TORCH_KERNEL_H_
