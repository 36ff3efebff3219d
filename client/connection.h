// A channel to one gradgated with its deadline and its words for errors: what the clients of all services share.
//
// Thread class: any thread.

#ifndef GRADGATE_CLIENT_CONNECTION_H_
#define GRADGATE_CLIENT_CONNECTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cancellation.h"
#include "client/client_options.h"
#include "client/target.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"

namespace gradgate::client {

class Connection {
 public:
  // Reads the TLS files and, for an empty target, the environment; does not connect.
  // INVALID_ARGUMENT: timeout, target or TLS files, see target.h and channel.h. UNAVAILABLE: no target was given and there is
  // no directory where a daemon could be.
  static absl::StatusOr<std::shared_ptr<const Connection>> Create(const ClientOptions& options);

  const Target& target() const { return target_; }
  absl::Duration timeout() const { return timeout_; }
  absl::Time Deadline() const { return absl::Now() + timeout_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // What a call's failure means to a person; see errors.h.
  absl::Status Explained(const grpc::Status& status) const;

  // As Explained; where the job is not there, says which are, for which it asks once more.
  absl::Status ExplainedForJob(const grpc::Status& status, absl::string_view job) const;

  // INVALID_ARGUMENT for an empty name.
  static absl::Status CheckJob(absl::string_view job);

  // One unary call, by pointer to the stub's method.
  template <typename Stub, typename Method, typename Request, typename Response>
  static grpc::Status Call(Stub& stub, Method method, const Request& request, absl::Time deadline, Response* response,
                           Cancellation* cancel = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    const Cancellation::Scope scope(cancel, &context);
    return (stub.*method)(&context, request, response);
  }

  // A call about a job, with the deadline of all. Errors: CheckJob's, then ExplainedForJob's.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> CallForJob(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                      const Request& request, Cancellation* cancel = nullptr) const {
    if (absl::Status status = CheckJob(request.job()); !status.ok()) return status;
    Response response;
    const grpc::Status status = Call(stub, method, request, Deadline(), &response, cancel);
    if (!status.ok()) return ExplainedForJob(status, request.job());
    return response;
  }

 private:
  Connection(Target target, const ClientOptions& options, std::shared_ptr<grpc::Channel> channel);
  std::string KnownJobs() const;

  const Target target_;
  const TlsFiles tls_;
  const absl::Duration timeout_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_CONNECTION_H_
