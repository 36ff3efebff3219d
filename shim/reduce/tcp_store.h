// A store served by one rank over TCP and reached by all; tcp_store_server.h has the bytes.
//
// Thread class: any thread. A client has one connection: calls of several threads run one after another, each within its own
// timeout. A connection left in doubt by a timeout is opened anew by the next call. Resolving a host name is the system's and
// may outlast a timeout.

#ifndef GRADGATE_SHIM_REDUCE_TCP_STORE_H_
#define GRADGATE_SHIM_REDUCE_TCP_STORE_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "shim/core/thread_annotations.h"
#include "shim/reduce/store.h"
#include "shim/reduce/tcp_store_server.h"

namespace gradgate {

class TcpStore final : public Store {
 public:
  // serve: this rank serves too, until the store is destroyed; exactly one rank does. The others try to connect until
  // timeout_ns is over, since the serving rank may start later. port 0 only with serve; bound_port (may be null) receives the
  // port. kInvalidArgument: port 0 without serve. kUnavailable: cannot listen, or nobody answered; names host and port.
  static Status Open(const std::string& host, uint16_t port, bool serve, int64_t timeout_ns, std::unique_ptr<Store>* store,
                     uint16_t* bound_port = nullptr);

  ~TcpStore() override;

  // Also kResourceExhausted: the serving rank holds too much.
  Status Set(const std::string& key, std::string_view value, int64_t timeout_ns) override;
  Status Get(const std::string& key, int64_t timeout_ns, std::string* value) override;

 private:
  TcpStore(std::string host, uint16_t port, std::unique_ptr<TcpStoreServer> server);

  Status Call(uint8_t op, const std::string& key, std::string_view value, int64_t timeout_ns, std::string* reply)
      GG_EXCLUDES(mutex_);
  // With the turn, without the lock.
  Status Connect(int64_t deadline_ns);
  Status Exchange(const std::string& request, int64_t deadline_ns, std::string* reply);
  void Disconnect();

  const std::string host_;
  const uint16_t port_;
  const std::unique_ptr<TcpStoreServer> server_;  // null on all but one rank
  Mutex mutex_;
  std::condition_variable_any turn_;
  bool busy_ GG_GUARDED_BY(mutex_) = false;
  int fd_ = -1;  // whoever set busy_
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_TCP_STORE_H_
