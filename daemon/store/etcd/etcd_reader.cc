#include "daemon/store/etcd/etcd_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/etcd/etcd_errors.h"
#include "daemon/store/etcd/transactions.h"
#include "daemon/store/limits.h"

namespace gradgate {
namespace {

constexpr int64_t kPageKeys = 512;
constexpr size_t kMaxKeysRead = 2 * kMaxStoreKeys;  // what comes beyond them is left out

class Reader {
 public:
  Reader(const EtcdOptions& options, size_t endpoint, EtcdLink* link, EtcdState* state)
      : options_(options),
        endpoint_(endpoint),
        link_(link),
        state_(state),
        next_key_(options.prefix),
        end_(PrefixEnd(options.prefix)) {}

  absl::Status Run() {
    Change([](EtcdCopy& copy) { copy.Begin(); });
    do {
      if (absl::Status s = ReadPage(); !s.ok()) return s;
    } while (more_ && key_count_ < kMaxKeysRead);
    if (more_) Change([](EtcdCopy& copy) { copy.ReadTooLong(); });
    state_->ChangeCopy([this](EtcdCopy& copy) { return copy.Finish(revision_, cluster_id_); });
    return absl::OkStatus();
  }

 private:
  template <class Function>
  void Change(Function function) {
    state_->ChangeCopy([&](EtcdCopy& copy) {
      function(copy);
      return std::vector<std::string>();
    });
  }

  absl::StatusOr<etcdserverpb::RangeResponse> Range(bool keys_only) {
    etcdserverpb::RangeRequest request;
    request.set_key(next_key_);
    request.set_range_end(end_);
    request.set_limit(limit_);
    request.set_revision(revision_);
    request.set_keys_only(keys_only);
    etcdserverpb::RangeResponse response;
    const absl::Status status = link_->Call(
        endpoint_, absl::Now() + options_.call_timeout,
        [&](EtcdStubs& stubs, grpc::ClientContext* context) { return stubs.kv->Range(context, request, &response); });
    if (!status.ok()) return status;
    return response;
  }

  // Large values make a page too long to be read: then it takes fewer, and the one that is too long alone is passed over.
  absl::Status ReadPage() {
    absl::StatusOr<etcdserverpb::RangeResponse> page = Range(false);
    while (!page.ok() && IsTooLongForUs(page.status()) && limit_ > 1) {
      limit_ = std::max<int64_t>(limit_ / 8, 1);
      page = Range(false);
    }
    const bool too_long = !page.ok() && IsTooLongForUs(page.status());
    if (too_long) page = Range(true);
    if (!page.ok()) return page.status();
    if (absl::Status s = Check(*page); !s.ok()) return s;
    if (revision_ == 0) {
      revision_ = page->header().revision();
      cluster_id_ = page->header().cluster_id();
    }
    Change([&](EtcdCopy& copy) {
      if (too_long) copy.ReadTooLong();
      if (too_long) return;
      for (const etcdserverpb::KeyValue& pair : page->kvs()) copy.Read(pair);
    });
    key_count_ += static_cast<size_t>(page->kvs_size());
    more_ = page->more() && page->kvs_size() > 0;
    if (more_) next_key_ = page->kvs(page->kvs_size() - 1).key() + '\0';
    return absl::OkStatus();
  }

  absl::Status Check(const etcdserverpb::RangeResponse& page_untrusted) const {
    const absl::string_view what = NonsenseIn(page_untrusted, next_key_, end_);
    if (what.empty()) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(link_->stubs(endpoint_).endpoint, ": the answer makes no sense: ", what, "; is it an etcd?"));
  }

  const EtcdOptions& options_;
  const size_t endpoint_;
  EtcdLink* const link_;
  EtcdState* const state_;
  std::string next_key_;
  const std::string end_;
  int64_t limit_ = kPageKeys;
  int64_t revision_ = 0;
  uint64_t cluster_id_ = 0;
  size_t key_count_ = 0;
  bool more_ = false;
};

}  // namespace

absl::Status ReadAll(const EtcdOptions& options, size_t endpoint, EtcdLink* link, EtcdState* state) {
  return Reader(options, endpoint, link, state).Run();
}

}  // namespace gradgate
