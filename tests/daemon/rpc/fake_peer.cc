#include "tests/daemon/rpc/fake_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "grpcpp/alarm.h"
#include "gtest/gtest.h"

namespace gradgate::testing {
namespace {

std::string Dump(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const auto& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

int PortOf(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

UniqueFd BindLoopback() {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

class Call final : public grpc::ServerGenericBidiReactor, public std::enable_shared_from_this<Call> {
 public:
  Call(FakePeer* peer, const FakePeer::Behaviour* behaviour, std::string method)
      : peer_(peer), behaviour_(behaviour), method_(std::move(method)) {}

  void Start() {
    self_ = shared_from_this();
    StartRead(&request_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return End(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no request"));
    reply_ = (*behaviour_)(method_, Dump(request_));
    ++peer_->call_count;
    if (!reply_.status) return;
    if (reply_.delay == absl::ZeroDuration()) return Reply();
    // The alarm keeps its callback for as long as it lives itself, which is as long as the call.
    alarm_.Set(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(reply_.delay),
               [self = shared_from_this()](bool) mutable { std::exchange(self, nullptr)->Reply(); });
  }

  void Reply() {
    if (!reply_.status->ok()) return End(*reply_.status);
    if (ended_.exchange(true)) return;
    const grpc::Slice slice(reply_.bytes);
    answer_ = grpc::ByteBuffer(&slice, 1);
    StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
  }

  void OnCancel() override {
    ++peer_->cancelled_count;
    End(grpc::Status::CANCELLED);
  }

  void End(const grpc::Status& status) {
    if (!ended_.exchange(true)) Finish(status);
  }

  void OnDone() override {
    alarm_.Cancel();
    const auto last = std::move(self_);
  }

  FakePeer* const peer_;
  const FakePeer::Behaviour* const behaviour_;
  const std::string method_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
  FakePeer::Reply reply_;
  std::atomic<bool> ended_ = false;
  grpc::Alarm alarm_;
  std::shared_ptr<Call> self_;
};

}  // namespace

FakePeer::FakePeer(Behaviour behaviour, std::shared_ptr<grpc::ServerCredentials> credentials)
    : behaviour_(std::move(behaviour)) {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort("127.0.0.1:0", credentials ? credentials : grpc::InsecureServerCredentials(), &port_);
  builder.RegisterCallbackGenericService(this);
  server_ = builder.BuildAndStart();
  EXPECT_NE(server_, nullptr);
}

FakePeer::~FakePeer() { server_->Shutdown(std::chrono::system_clock::now()); }

grpc::ServerGenericBidiReactor* FakePeer::CreateReactor(grpc::GenericCallbackServerContext* context) {
  auto call = std::make_shared<Call>(this, &behaviour_, context->method());
  call->Start();
  return call.get();
}

DeafPort::DeafPort() : fd_(BindLoopback()) {
  EXPECT_EQ(listen(fd_.get(), 128), 0);
  port_ = PortOf(fd_.get());
}

std::string DeadAddress() {
  const UniqueFd fd = BindLoopback();
  return "127.0.0.1:" + std::to_string(PortOf(fd.get()));
}

}  // namespace gradgate::testing
