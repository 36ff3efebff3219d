// An etcd that misbehaves as it is told. Answers from memory: one store of keys, no leases that expire.
//
// Thread class: any thread.

#ifndef GRADGATE_TESTS_DAEMON_STORE_ETCD_FAKE_ETCD_H_
#define GRADGATE_TESTS_DAEMON_STORE_ETCD_FAKE_ETCD_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "etcdserverpb/etcd.grpc.pb.h"
#include "grpcpp/server.h"

namespace gradgate::testing {

class FakeEtcd final : public etcdserverpb::KV::Service,
                       public etcdserverpb::Watch::Service,
                       public etcdserverpb::Lease::Service {
 public:
  using WatchWriter = grpc::ServerReaderWriter<etcdserverpb::WatchResponse, etcdserverpb::WatchRequest>;

  FakeEtcd();
  ~FakeEtcd() override;

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }

  // Set before a client connects. Each replaces what would be done.
  std::function<grpc::Status(const etcdserverpb::RangeRequest&, etcdserverpb::RangeResponse*)> range;
  std::function<grpc::Status(const etcdserverpb::TxnRequest&, etcdserverpb::TxnResponse*)> txn;
  std::function<grpc::Status(grpc::ServerContext*, WatchWriter*)> watch;
  std::function<grpc::Status(grpc::ServerContext*)> keep_alive;
  std::function<void(etcdserverpb::LeaseGrantResponse*)> grant;
  std::atomic<int64_t> prolonged_ttl{10};  // what a prolonged lease is said to have; 0: it is gone

  // Ends what waits in Hang().
  void Release() { released_ = true; }
  // Until the client or the test gives up.
  grpc::Status Hang(grpc::ServerContext* context) const;

  int range_count() const { return range_count_; }
  int txn_count() const { return txn_count_; }

  grpc::Status Range(grpc::ServerContext*, const etcdserverpb::RangeRequest*, etcdserverpb::RangeResponse*) override;
  grpc::Status Txn(grpc::ServerContext*, const etcdserverpb::TxnRequest*, etcdserverpb::TxnResponse*) override;
  grpc::Status Watch(grpc::ServerContext*, WatchWriter*) override;
  grpc::Status LeaseGrant(grpc::ServerContext*, const etcdserverpb::LeaseGrantRequest*,
                          etcdserverpb::LeaseGrantResponse*) override;
  grpc::Status LeaseKeepAlive(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<etcdserverpb::LeaseKeepAliveResponse, etcdserverpb::LeaseKeepAliveRequest>*) override;

  // Says that a watch begins, then answers each sign of life that is asked for.
  static grpc::Status WatchQuietly(WatchWriter* stream);
  static etcdserverpb::WatchResponse Put(const std::string& key, const std::string& value, int64_t revision);

 private:
  std::atomic<bool> released_{false};
  std::atomic<int> range_count_{0}, txn_count_{0};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_STORE_ETCD_FAKE_ETCD_H_
