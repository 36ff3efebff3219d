#include "tests/daemon/store/etcd/fake_etcd.h"

#include <chrono>
#include <thread>

#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace gradgate::testing {

FakeEtcd::FakeEtcd() {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(static_cast<etcdserverpb::KV::Service*>(this));
  builder.RegisterService(static_cast<etcdserverpb::Watch::Service*>(this));
  builder.RegisterService(static_cast<etcdserverpb::Lease::Service*>(this));
  server_ = builder.BuildAndStart();
}

FakeEtcd::~FakeEtcd() {
  Release();
  server_->Shutdown(std::chrono::system_clock::now());
}

grpc::Status FakeEtcd::Hang(grpc::ServerContext* context) const {
  while (!released_ && !context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "released");
}

grpc::Status FakeEtcd::Range(grpc::ServerContext*, const etcdserverpb::RangeRequest* request,
                             etcdserverpb::RangeResponse* response) {
  ++range_count_;
  if (range) return range(*request, response);
  response->mutable_header()->set_revision(1);
  return grpc::Status::OK;
}

grpc::Status FakeEtcd::Txn(grpc::ServerContext*, const etcdserverpb::TxnRequest* request, etcdserverpb::TxnResponse* response) {
  ++txn_count_;
  if (txn) return txn(*request, response);
  response->mutable_header()->set_revision(2);
  response->set_succeeded(true);
  return grpc::Status::OK;
}

grpc::Status FakeEtcd::Watch(grpc::ServerContext* context, WatchWriter* stream) {
  return watch ? watch(context, stream) : WatchQuietly(stream);
}

grpc::Status FakeEtcd::WatchQuietly(WatchWriter* stream) {
  etcdserverpb::WatchRequest request;
  while (stream->Read(&request)) {
    etcdserverpb::WatchResponse response;
    response.mutable_header()->set_revision(1);
    response.set_created(request.has_create_request());
    if (!stream->Write(response)) break;
  }
  return grpc::Status::OK;
}

etcdserverpb::WatchResponse FakeEtcd::Put(const std::string& key, const std::string& value, int64_t revision) {
  etcdserverpb::WatchResponse response;
  response.mutable_header()->set_revision(revision);
  etcdserverpb::KeyValue& pair = *response.add_events()->mutable_kv();
  pair.set_key(key);
  pair.set_value(value);
  pair.set_mod_revision(revision);
  return response;
}

grpc::Status FakeEtcd::LeaseGrant(grpc::ServerContext*, const etcdserverpb::LeaseGrantRequest* request,
                                  etcdserverpb::LeaseGrantResponse* response) {
  response->set_id(7);
  response->set_ttl(request->ttl());
  if (grant) grant(response);
  return grpc::Status::OK;
}

grpc::Status FakeEtcd::LeaseKeepAlive(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<etcdserverpb::LeaseKeepAliveResponse, etcdserverpb::LeaseKeepAliveRequest>* stream) {
  if (keep_alive) return keep_alive(context);
  etcdserverpb::LeaseKeepAliveRequest request;
  while (stream->Read(&request)) {
    etcdserverpb::LeaseKeepAliveResponse response;
    response.set_id(request.id());
    response.set_ttl(prolonged_ttl);
    if (!stream->Write(response)) break;
  }
  return grpc::Status::OK;
}

}  // namespace gradgate::testing
