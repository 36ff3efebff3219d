#include "daemon/rpc/answer_budget.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"

namespace gradgate {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

// Lives as long as its call.
class CallInterceptor final : public grpc::experimental::Interceptor {
 public:
  CallInterceptor(AnswerBudget* budget, const AnswerBudget::PeerOf& peer_of, grpc::experimental::ServerRpcInfo* info)
      : budget_(budget), peer_of_(peer_of), info_(info) {}
  ~CallInterceptor() override { GiveBack(); }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) Take(methods);
    if (full_bytes_ != 0 && methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      methods->ModifySendStatus(
          grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                       absl::StrCat("an answer of ", full_bytes_,
                                    " bytes is not sent: others wait to be read already; read them, and ask again")));
    }
    methods->Proceed();
  }

 private:
  void Take(InterceptorBatchMethods* methods) {
    grpc::ByteBuffer* message = methods->GetSerializedSendMessage();
    if (message == nullptr || !message->Valid()) return;
    GiveBack();  // a stream writes one after the other; gRPC does not tell of the end of one that was looked at
    const size_t bytes = message->Length();
    if (peer_.empty()) peer_ = peer_of_(info_->server_context()->peer());
    if (budget_->Take(peer_, bytes)) {
      held_bytes_ += bytes;
      return;
    }
    // A stream's message is sent all the same: a watch holds one, and their number is bounded.
    if (!methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) return;
    full_bytes_ = bytes;
    message->Clear();
  }
  void GiveBack() {
    if (held_bytes_ != 0) budget_->GiveBack(peer_, std::exchange(held_bytes_, 0));
  }

  AnswerBudget* const budget_;
  const AnswerBudget::PeerOf& peer_of_;
  grpc::experimental::ServerRpcInfo* const info_;
  std::string peer_;
  size_t held_bytes_ = 0;
  size_t full_bytes_ = 0;  // of the answer that had no room
};

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Factory(AnswerBudget* budget, AnswerBudget::PeerOf peer_of) : budget_(budget), peer_of_(std::move(peer_of)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    return new CallInterceptor(budget_, peer_of_, info);
  }

 private:
  AnswerBudget* const budget_;
  const AnswerBudget::PeerOf peer_of_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> AnswerBudget::MakeInterceptors(PeerOf peer_of) {
  return std::make_unique<Factory>(this, std::move(peer_of));
}

bool AnswerBudget::Take(const std::string& peer, size_t bytes) {
  MutexLock lock(&mutex_);
  const auto held = of_peer_.find(peer);
  const bool peer_has_room = held == of_peer_.end() || held->second + bytes <= max_peer_bytes_;
  if (held_bytes_ + bytes > max_bytes_ || !peer_has_room) {
    ++refused_count_;
    return false;
  }
  held_bytes_ += bytes;
  of_peer_[peer] += bytes;
  return true;
}

void AnswerBudget::GiveBack(const std::string& peer, size_t bytes) {
  MutexLock lock(&mutex_);
  held_bytes_ -= bytes;
  const auto held = of_peer_.find(peer);
  if ((held->second -= bytes) == 0) of_peer_.erase(held);
}

size_t AnswerBudget::held_bytes() {
  MutexLock lock(&mutex_);
  return held_bytes_;
}

uint64_t AnswerBudget::refused_count() {
  MutexLock lock(&mutex_);
  return refused_count_;
}

}  // namespace gradgate
