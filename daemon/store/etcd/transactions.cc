#include "daemon/store/etcd/transactions.h"

#include <utility>

namespace gradgate {
namespace {

constexpr int32_t kEqual = 0;
constexpr int32_t kModRevision = 2;

}  // namespace

std::string PrefixEnd(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');  // all keys
  ++prefix.back();
  return prefix;
}

etcdserverpb::TxnRequest PutTransaction(const std::string& key, const std::string& value, int64_t lease,
                                        std::optional<int64_t> expected_revision) {
  etcdserverpb::TxnRequest request;
  if (expected_revision.has_value()) {
    etcdserverpb::Compare& compare = *request.add_compare();
    compare.set_result(kEqual);
    compare.set_target(kModRevision);
    compare.set_key(key);
    compare.set_mod_revision(*expected_revision);
  }
  etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(key);
  put.set_value(value);
  put.set_lease(lease);
  request.add_failure()->mutable_request_range()->set_key(key);
  return request;
}

std::optional<EtcdCopy::Entry> PresentValue(const etcdserverpb::TxnResponse& response_untrusted) {
  if (response_untrusted.responses_size() != 1) return std::nullopt;
  const auto& range = response_untrusted.responses(0).response_range();
  if (range.kvs_size() != 1) return std::nullopt;
  const etcdserverpb::KeyValue& pair = range.kvs(0);
  return EtcdCopy::Entry{pair.value(), pair.mod_revision(), pair.lease()};
}

absl::string_view NonsenseIn(const etcdserverpb::RangeResponse& response_untrusted, absl::string_view first,
                             absl::string_view end) {
  if (response_untrusted.header().revision() < 1) return "revision below 1";
  absl::string_view last;
  for (const etcdserverpb::KeyValue& pair : response_untrusted.kvs()) {
    if (pair.key() < first || pair.key() >= end || (!last.empty() && pair.key() <= last)) return "keys out of order";
    last = pair.key();
  }
  return "";
}

}  // namespace gradgate
