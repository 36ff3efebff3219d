// What the opaque handles of gradgate.h hold.

#ifndef GRADGATE_SHIM_CAPI_HANDLES_H_
#define GRADGATE_SHIM_CAPI_HANDLES_H_

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "shim/capi/ledger.h"
#include "shim/capi/session.h"
#include "shim/reduce/store.h"
#include "shim/reduce/transport.h"

namespace gradgate {

// In a forked child the threads behind a handle do not exist, and its descriptors are the parent's too: nothing there may be
// touched.
class Owned {
 public:
  bool foreign() const { return owner_ != ::getpid(); }

 private:
  const pid_t owner_ = ::getpid();
};

}  // namespace gradgate

struct gg_store : gradgate::Owned {
  std::unique_ptr<gradgate::Store> store;
  // Sessions and groups made on this store so far, in the same order on all ranks: they keep their keys apart.
  std::atomic<uint32_t> sessions{0};
  std::atomic<uint32_t> groups{0};
};

struct gg_transport : gradgate::Owned {
  std::unique_ptr<gradgate::Transport> transport;
};

struct gg_session {
  std::unique_ptr<gradgate::Session> session;
};

struct gg_ledger {
  std::unique_ptr<gradgate::Ledger> ledger;
};

#endif  // GRADGATE_SHIM_CAPI_HANDLES_H_
