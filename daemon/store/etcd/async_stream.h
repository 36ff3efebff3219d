// A bidirectional gRPC stream as events on a completion queue: reads all the time, sends what is queued, and says once that it
// has ended.
//
//   Start ─► open ─► (read | written)… ─► ended
//
// Thread class: the one thread that takes events from the queue and calls Done() of their tags. The object outlives the queue.

#ifndef GRADGATE_DAEMON_STORE_ETCD_ASYNC_STREAM_H_
#define GRADGATE_DAEMON_STORE_ETCD_ASYNC_STREAM_H_

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_stream.h"

namespace gradgate {

// What a completion queue brings back.
class AsyncTag {
 public:
  using Handler = std::function<void(bool ok)>;
  explicit AsyncTag(Handler handler) : handler_(std::move(handler)) {}
  void Done(bool ok) { handler_(ok); }

 private:
  const Handler handler_;
};

template <class Request, class Response>
class AsyncStream {
 public:
  using Rpc = grpc::ClientAsyncReaderWriter<Request, Response>;
  using OnMessage = std::function<void(const Response& message)>;
  using OnEnd = std::function<void(const grpc::Status& status)>;

  AsyncStream(OnMessage on_message, OnEnd on_end)
      : on_message_(std::move(on_message)),
        on_end_(std::move(on_end)),
        opened_([this](bool ok) { Opened(ok); }),
        read_([this](bool ok) { Read(ok); }),
        written_([this](bool ok) { Written(ok); }),
        finished_([this](bool) {
          ended_ = true;
          on_end_(status_);
        }) {}

  grpc::ClientContext* context() { return &context_; }

  void Start(std::unique_ptr<Rpc> rpc) {
    rpc_ = std::move(rpc);
    rpc_->StartCall(&opened_);
  }

  void Send(Request request) {
    queue_.push_back(std::move(request));
    WriteNext();
  }

  // No more events come: it was not started, or has ended. Only then may the queue be shut down.
  bool done() const { return !rpc_ || (ended_ && !writing_); }

  // Ends it soon; the events still come.
  void Cancel() {
    if (rpc_) context_.TryCancel();
  }

 private:
  void Opened(bool ok) {
    if (!ok) return rpc_->Finish(&status_, &finished_);
    open_ = true;
    rpc_->Read(&message_, &read_);
    WriteNext();
  }
  void Read(bool ok) {
    if (!ok) return rpc_->Finish(&status_, &finished_);
    on_message_(message_);
    rpc_->Read(&message_, &read_);
  }
  void Written(bool ok) {
    writing_ = false;
    if (ok) WriteNext();  // else the read ends too
  }
  void WriteNext() {
    if (!open_ || ended_ || writing_ || queue_.empty()) return;
    writing_ = true;
    rpc_->Write(queue_.front(), &written_);
    queue_.pop_front();
  }

  const OnMessage on_message_;
  const OnEnd on_end_;
  AsyncTag opened_, read_, written_, finished_;
  grpc::ClientContext context_;
  std::unique_ptr<Rpc> rpc_;
  Response message_;
  grpc::Status status_;
  std::deque<Request> queue_;
  bool open_ = false;
  bool writing_ = false;
  bool ended_ = false;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_ASYNC_STREAM_H_
