#include "daemon/store/etcd/announcer.h"

#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/etcd/etcd_errors.h"
#include "daemon/store/etcd/transactions.h"

namespace gradgate {
namespace {

constexpr int kTries = 3;  // a key that changes more often meanwhile is looked at later

// After these nothing else of the session works.
bool EndsSession(const absl::Status& status) { return IsTransient(status) || absl::IsCancelled(status); }

}  // namespace

absl::Status Announcer::Update(size_t endpoint) {
  const std::map<std::string, std::string> announced = state_->announced();
  if (announced.empty()) return absl::OkStatus();
  absl::Status worst;
  for (const auto& [key, value] : announced) {
    absl::Status status = UpdateKey(endpoint, key, value);
    if (absl::IsNotFound(status)) {  // the lease has gone
      ForgetLease();
      status = UpdateKey(endpoint, key, value);
    }
    if (EndsSession(status)) return status;
    if (!status.ok()) worst = status;
  }
  state_->SetAnnounceStatus(announced, worst);
  return absl::OkStatus();
}

absl::Status Announcer::GrantLease(size_t endpoint) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(absl::ToInt64Seconds(options_->lease_ttl));
  etcdserverpb::LeaseGrantResponse response;
  const absl::Status status = link_->Call(
      endpoint, absl::Now() + options_->call_timeout,
      [&](EtcdStubs& stubs, grpc::ClientContext* context) { return stubs.lease->LeaseGrant(context, request, &response); });
  if (!status.ok()) return status;
  if (response.id() == 0) return absl::InternalError(absl::StrCat("etcd made no lease: ", ShownText(response.error())));
  lease_ = response.id();
  return absl::OkStatus();
}

bool Announcer::IsOwn(const std::string& key, const EtcdCopy::Entry& entry) const {
  return (entry.lease != 0 && (entry.lease == lease_ || entry.lease == former_lease_)) ||
         (options_->may_replace && options_->may_replace(key, entry.value));
}

absl::Status Announcer::UpdateKey(size_t endpoint, const std::string& key, const std::string& value) {
  std::optional<EtcdCopy::Entry> present = state_->Find(key);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (present && lease_ != 0 && present->lease == lease_ && present->value == value) return absl::OkStatus();
    if (present && !IsOwn(key, *present)) {
      return absl::AlreadyExistsError(absl::StrCat("another daemon keeps ", key, " in ", options_->name));
    }
    if (lease_ == 0) {
      if (absl::Status s = GrantLease(endpoint); !s.ok()) return s;
    }
    const etcdserverpb::TxnRequest request =
        PutTransaction(options_->prefix + key, value, lease_, present ? present->revision : 0);
    etcdserverpb::TxnResponse response;
    const absl::Status status =
        link_->Call(endpoint, absl::Now() + options_->call_timeout,
                    [&](EtcdStubs& stubs, grpc::ClientContext* context) { return stubs.kv->Txn(context, request, &response); });
    if (!status.ok()) return status;
    if (response.succeeded()) {
      state_->ChangeCopy([&](EtcdCopy& copy) {
        const bool changed = copy.Wrote(key, value, response.header().revision(), lease_);
        return changed ? std::vector<std::string>{key} : std::vector<std::string>();
      });
      return absl::OkStatus();
    }
    present = PresentValue(response);
  }
  return absl::AbortedError(absl::StrCat(key, " changes too often in ", options_->name));
}

void Announcer::SayFarewell(size_t endpoint, absl::Time deadline) {
  if (lease_ == 0) return;
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(lease_);
  etcdserverpb::LeaseRevokeResponse response;
  link_
      ->CallAfterCancel(
          endpoint, deadline,
          [&](EtcdStubs& stubs, grpc::ClientContext* context) { return stubs.lease->LeaseRevoke(context, request, &response); })
      .IgnoreError();
}

}  // namespace gradgate
