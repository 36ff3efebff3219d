// A gRPC server on a loopback port that does to every unary call what a test says: answers bytes, an error, late, or never.
//
// Thread class: the behaviour is called on gRPC's threads; the object belongs to one.

#ifndef GRADGATE_TESTS_DAEMON_RPC_FAKE_PEER_H_
#define GRADGATE_TESTS_DAEMON_RPC_FAKE_PEER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "daemon/node/unique_fd.h"
#include "google/protobuf/message.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"

namespace gradgate::testing {

class FakePeer final : public grpc::CallbackGenericService {
 public:
  struct Reply {
    std::optional<grpc::Status> status;  // unset: never answers
    std::string bytes = "";              // of the answer
    absl::Duration delay = absl::ZeroDuration();
  };
  using Behaviour = std::function<Reply(const std::string& method, const std::string& request)>;

  explicit FakePeer(Behaviour behaviour, std::shared_ptr<grpc::ServerCredentials> credentials = nullptr);
  ~FakePeer() override;

  static Reply Answer(const google::protobuf::Message& message) { return {grpc::Status::OK, message.SerializeAsString()}; }
  static Reply Never() { return {std::nullopt}; }

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  // Calls that began, and those that were cancelled before they were answered.
  std::atomic<int> call_count = 0;
  std::atomic<int> cancelled_count = 0;

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

  const Behaviour behaviour_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// A port on loopback where connections are accepted by the kernel alone: nobody reads or writes.
class DeafPort {
 public:
  DeafPort();
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  UniqueFd fd_;
  int port_ = 0;
};

// A port on loopback where nobody listens.
std::string DeadAddress();

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_RPC_FAKE_PEER_H_
