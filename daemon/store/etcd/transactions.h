// The requests that the store makes of etcd, and what their answers say. Pure.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_STORE_ETCD_TRANSACTIONS_H_
#define GRADGATE_DAEMON_STORE_ETCD_TRANSACTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "daemon/store/etcd/etcd_copy.h"
#include "etcdserverpb/etcd.pb.h"

namespace gradgate {

// The end of the range that holds all keys with this prefix.
std::string PrefixEnd(std::string prefix);

// Writes `key`; if `expected_revision` is set, only if the key's is that (0: there is none), else reads it.
etcdserverpb::TxnRequest PutTransaction(const std::string& key, const std::string& value, int64_t lease,
                                        std::optional<int64_t> expected_revision);

// What a transaction that did not succeed read instead. Nothing: there is no such key.
std::optional<EtcdCopy::Entry> PresentValue(const etcdserverpb::TxnResponse& response_untrusted);

// What makes no sense in an answer to "all keys from `first` to before `end`"; empty: nothing.
absl::string_view NonsenseIn(const etcdserverpb::RangeResponse& response_untrusted, absl::string_view first,
                             absl::string_view end);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_TRANSACTIONS_H_
