#include "daemon/store/etcd/etcd_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/etcd/etcd_errors.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace gradgate {
namespace {

constexpr int kMaxMessageBytes = 8 << 20;
constexpr int kConnectTimeoutMs = 3000;
constexpr int kMinBackoffMs = 100;
constexpr int kMaxBackoffMs = 1000;
constexpr int kKeepaliveMs = 10'000;  // etcd closes connections that ask more often than every 5 s
constexpr int kKeepaliveTimeoutMs = 3000;
constexpr absl::Duration kLook = absl::Milliseconds(100);  // how soon Cancel() is seen by who waits for a connection

absl::Status ReadPem(absl::string_view flag, const std::string& path, std::string* text) {
  if (path.empty()) return absl::OkStatus();
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream read;
  if (!file || !(read << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat("cannot read --", flag, " ", path, ": ", std::strerror(errno)));
  }
  *text = read.str();
  if (text->find("-----BEGIN") != std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " ", path, " is not PEM: it has no -----BEGIN line"));
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const EtcdOptions& options) {
  if (!options.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions pem;
  if (absl::Status s = ReadPem("store_ca", options.ca_file, &pem.pem_root_certs); !s.ok()) return s;
  if (absl::Status s = ReadPem("store_cert", options.cert_file, &pem.pem_cert_chain); !s.ok()) return s;
  if (absl::Status s = ReadPem("store_key", options.key_file, &pem.pem_private_key); !s.ok()) return s;
  return grpc::SslCredentials(pem);
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // etcd's own clients use none either
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own for each store of a process
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMinBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  // A connection that was cut off is given up: TCP would try it again only after as long as the cut has lasted.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  return arguments;
}

void AddMetadata(const std::string& token, grpc::ClientContext* context) {
  context->AddMetadata("hasleader", "true");  // a member without a leader says so, instead of going on with old data
  if (!token.empty()) context->AddMetadata("token", token);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdLink>> EtcdLink::Create(const EtcdOptions& options) {
  absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials = Credentials(options);
  if (!credentials.ok()) return credentials.status();
  std::unique_ptr<EtcdLink> link(new EtcdLink(options));
  for (const std::string& endpoint : options.endpoints) {
    const auto channel = grpc::CreateCustomChannel(endpoint, *credentials, Arguments());
    link->stubs_.push_back({endpoint, channel, etcdserverpb::KV::NewStub(channel), etcdserverpb::Lease::NewStub(channel),
                            etcdserverpb::Watch::NewStub(channel), etcdserverpb::Auth::NewStub(channel)});
  }
  return link;
}

// A call on a channel whose last attempt has failed fails at once, and nobody would then drive the next attempt: gRPC polls
// sockets only while somebody waits for something.
void EtcdLink::AwaitConnection(size_t endpoint, absl::Time deadline) {
  const std::shared_ptr<grpc::Channel>& channel = stubs(endpoint).channel;
  // Of a channel whose attempts fail, the next one's failure cannot be told from the last one's; then half of the time is left
  // to hear why.
  const absl::Time begin = absl::Now();
  const absl::Time failing_until = begin + std::min((deadline - begin) / 2, absl::Milliseconds(kMaxBackoffMs));
  bool tried = false;
  while (absl::Now() < deadline && !cancelled()) {
    const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY || state == GRPC_CHANNEL_SHUTDOWN) return;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE && (tried || absl::Now() >= failing_until)) return;
    tried |= state != GRPC_CHANNEL_TRANSIENT_FAILURE;
    tried |= channel->WaitForStateChange(state, absl::ToChronoTime(std::min(deadline, absl::Now() + kLook)));
  }
}

grpc::Status EtcdLink::CallOnce(size_t endpoint, absl::Time deadline, const std::string& token, bool is_last, Method method) {
  if (!is_last) AwaitConnection(endpoint, deadline);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  AddMetadata(token, &context);
  {
    MutexLock lock(&mutex_);
    if (cancelled_ && !is_last) return grpc::Status(grpc::StatusCode::CANCELLED, "the store is being closed");
    running_.insert(&context);
  }
  const grpc::Status status = method(stubs(endpoint), &context);
  MutexLock lock(&mutex_);
  running_.erase(&context);
  return status;
}

absl::StatusOr<std::string> EtcdLink::Token(size_t endpoint, absl::Time deadline, bool is_last) {
  if (options_.user.empty()) return "";
  {
    MutexLock lock(&mutex_);
    if (!token_.empty() || auth_is_off_) return token_;
  }
  etcdserverpb::AuthenticateRequest request;
  request.set_name(options_.user);
  request.set_password(options_.password);
  etcdserverpb::AuthenticateResponse response;
  const grpc::Status status = CallOnce(endpoint, deadline, "", is_last, [&](EtcdStubs& stubs, grpc::ClientContext* context) {
    return stubs.auth->Authenticate(context, request, &response);
  });
  if (!status.ok() && !IsAuthOff(status)) return EtcdError(status, stubs(endpoint).endpoint, options_);
  MutexLock lock(&mutex_);
  auth_is_off_ = !status.ok();
  token_ = response.token();
  return token_;
}

void EtcdLink::ForgetToken(const std::string& token) {
  MutexLock lock(&mutex_);
  if (token_ == token) token_.clear();  // else somebody has renewed it already
  auth_is_off_ = false;
}

absl::Status EtcdLink::Call(size_t endpoint, absl::Time deadline, bool is_last, Method method) {
  for (int attempt = 0;; ++attempt) {
    absl::StatusOr<std::string> token = Token(endpoint, deadline, is_last);
    if (!token.ok()) return token.status();
    const grpc::Status status = CallOnce(endpoint, deadline, *token, is_last, method);
    if (status.ok()) return absl::OkStatus();
    if (attempt > 0 || options_.user.empty() || !IsTokenError(status)) {
      return EtcdError(status, stubs(endpoint).endpoint, options_);
    }
    ForgetToken(*token);
  }
}

absl::Status EtcdLink::Call(size_t endpoint, absl::Time deadline, Method method) {
  return Call(endpoint, deadline, false, method);
}

absl::Status EtcdLink::CallAfterCancel(size_t endpoint, absl::Time deadline, Method method) {
  return Call(endpoint, deadline, true, method);
}

absl::Status EtcdLink::PrepareStream(size_t endpoint, absl::Time deadline, grpc::ClientContext* context) {
  absl::StatusOr<std::string> token = Token(endpoint, deadline, false);
  if (!token.ok()) return token.status();
  AwaitConnection(endpoint, deadline);
  AddMetadata(*token, context);
  return absl::OkStatus();
}

absl::Status EtcdLink::StreamError(size_t endpoint, const grpc::Status& status) {
  if (IsTokenError(status)) {
    MutexLock lock(&mutex_);
    token_.clear();
    auth_is_off_ = false;
  }
  return EtcdError(status, stubs(endpoint).endpoint, options_);
}

void EtcdLink::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : running_) context->TryCancel();
}

}  // namespace gradgate
