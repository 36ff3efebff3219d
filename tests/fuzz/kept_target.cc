// What lies in stores, and what etcd answers: whole readings, watches, transactions and errors of an etcd that says anything;
// what the daemon takes from its copy as policies and as other daemons; and the bytes of a file store.

#include <optional>

#include "absl/strings/match.h"
#include "daemon/node/text_check.h"
#include "daemon/policy/policy_content.h"
#include "daemon/policy/policy_desk.h"
#include "daemon/rpc/peer_book.h"
#include "daemon/store/etcd/etcd_copy.h"
#include "daemon/store/etcd/etcd_errors.h"
#include "daemon/store/etcd/transactions.h"
#include "daemon/store/file_image.h"
#include "daemon/store/limits.h"
#include "gradgate/store/v1/policy.pb.h"
#include "gradgate/store/v1/store.pb.h"
#include "tests/fuzz/answers.h"
#include "tests/fuzz/fixed_node.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

constexpr char kPrefix[] = "/g/";
constexpr int kMaxSteps = 24;
constexpr char kRunId[] = "11111111111111111111111111111111";

enum Mode : unsigned { kEtcdMode, kErrorMode, kFileMode, kModeCount };
enum Step : unsigned { kRange, kBegin, kRead, kFinish, kWatch, kWrote, kRemoved, kRefresh, kStepCount };

// Keys that mean something, and any.
std::string Key(Input& in) {
  switch (in.Below(8)) {
    case 0:
      return std::string("policies/1000/6a6f62/") + kRunId + "/0";
    case 1:
      return std::string("policies/1000/6a6f62/") + kRunId + "/1";
    case 2:
      return "launches/1000/6a6f62/launch";
    case 3:
      return "nodes/node-b";
    case 4:
      return "nodes/" + in.Bytes(in.Below(5));
    case 5:
      return std::string(in.Below(4) + 510, 'k');
    default:
      return in.Bytes(in.Below(9));
  }
}

store::v1::StoredPolicy GoodPolicy(int attempt) {
  store::v1::StoredPolicy stored;
  stored.set_user_id(1000);
  stored.set_job_name("job");
  stored.set_run_id(kRunId);
  stored.set_attempt(attempt);
  stored.mutable_policy()->set_sync_mode(v1::SYNC_MODE_WINDOW);
  stored.set_actor("somebody");
  stored.mutable_propose_time()->set_seconds(1'700'000'000);
  return stored;
}

// Records that a good daemon wrote, with what the bytes say put over them, and any bytes.
std::string Value(Input& in) {
  switch (in.Below(6)) {
    case 0:
    case 1: {
      store::v1::StoredPolicy stored = GoodPolicy(static_cast<int>(in.Below(2)));
      store::v1::StoredPolicy change;
      if (change.ParsePartialFromString(in.Text())) stored.MergeFrom(change);
      return stored.SerializeAsString();
    }
    case 2: {
      store::v1::LaunchPolicy kept;
      *kept.mutable_stored() = GoodPolicy(static_cast<int>(in.Below(2)));
      kept.set_version(in.Byte());
      kept.set_launch_id("launch");
      store::v1::LaunchPolicy change;
      if (change.ParsePartialFromString(in.Text())) kept.MergeFrom(change);
      return kept.SerializeAsString();
    }
    case 3: {
      store::v1::StoredNode node;
      node.set_node_name("node-b");
      node.set_advertise_address("127.0.0.1:1");
      store::v1::StoredNode change;
      if (change.ParsePartialFromString(in.Text())) node.MergeFrom(change);
      return node.SerializeAsString();
    }
    case 4:
      return std::string((kMaxStoreValueBytes - 1) + in.Below(3), 'v');
    default:
      return in.Text();
  }
}

etcdserverpb::KeyValue Pair(Input& in) {
  etcdserverpb::KeyValue pair;
  pair.set_key((in.Below(8) == 7 ? "/h/" : kPrefix) + Key(in));
  pair.set_value(Value(in));
  pair.set_mod_revision(in.Below(16) == 15 ? in.Number<int64_t>() : in.Byte());
  pair.set_lease(in.Byte());
  return pair;
}

// The daemon's side of a store whose copy the input changes.
class CopiedStore final : public Store {
 public:
  absl::StatusOr<int64_t> Put(absl::string_view, absl::string_view, std::optional<int64_t>, absl::Time) override {
    return absl::UnavailableError("read only");
  }
  absl::Status Delete(absl::string_view, absl::Time) override { return absl::UnavailableError("read only"); }
  std::vector<StoredValue> List(absl::string_view prefix) const override { return copy.List(prefix); }
  void Announce(absl::string_view, absl::string_view) override {}
  StoreHealth Health() const override { return {}; }
  void OnChange(Changed) override {}

  EtcdCopy copy{kPrefix};
};

class Etcd {
 public:
  void Run(Input& in) {
    for (int i = 0; i < kMaxSteps && !in.empty(); ++i) {
      Take(static_cast<Step>(in.Below(kStepCount)), in);
      CheckCopy();
    }
    Refresh();
  }

 private:
  void Take(Step step, Input& in) {
    EtcdCopy& copy = store_.copy;
    switch (step) {
      case kRange:
        return Range(in);
      case kBegin:
        return copy.Begin();
      case kRead:
        return in.Below(8) == 7 ? copy.ReadTooLong() : copy.Read(Pair(in));
      case kFinish: {
        const int64_t revision = in.Byte() + 1;  // the reader takes no other
        return CheckChanged(copy.Finish(revision, in.Below(3)));
      }
      case kWatch: {
        etcdserverpb::WatchResponse response;
        response.set_fragment(in.Coin());
        for (size_t i = in.Below(4); i > 0; --i) {
          etcdserverpb::Event& event = *response.add_events();
          event.set_type(static_cast<decltype(event.type())>(in.Below(3)));
          *event.mutable_kv() = Pair(in);
        }
        const int64_t before = copy.revision();
        CheckChanged(copy.Apply(response));
        FUZZ_CHECK(copy.revision() >= before, "a watch takes the revision back");
        return;
      }
      case kWrote: {
        const std::string key = Key(in), value = Value(in);
        if (!CheckStoreKey(key).ok() || !CheckStoreValue(key, value).ok()) return;  // nor is it written then
        const int64_t revision = in.Byte();
        const bool taken = copy.Wrote(key, value, revision, in.Byte());
        FUZZ_CHECK(!taken || copy.Find(key)->value == value, key);
        return;
      }
      case kRemoved: {
        const std::string key = Key(in);
        const bool taken = copy.Removed(key, in.Byte());
        FUZZ_CHECK(!taken || copy.Find(key) == nullptr, key);
        return;
      }
      case kRefresh:
        return Refresh();
      case kStepCount:
        return;
    }
  }

  // A page that the reader takes has keys of the range alone, in order.
  void Range(Input& in) {
    etcdserverpb::RangeResponse page;
    page.mutable_header()->set_revision(in.Byte());
    for (size_t i = in.Below(4); i > 0; --i) *page.add_kvs() = Pair(in);
    const std::string end = PrefixEnd(kPrefix);
    if (!NonsenseIn(page, kPrefix, end).empty()) return;
    store_.copy.Begin();
    for (const etcdserverpb::KeyValue& pair : page.kvs()) {
      FUZZ_CHECK(absl::StartsWith(pair.key(), kPrefix), pair.key());
      store_.copy.Read(pair);
    }
    CheckChanged(store_.copy.Finish(page.header().revision(), 1));
  }

  static void CheckChanged(const std::vector<std::string>& keys) {
    for (const std::string& key : keys) FUZZ_CHECK(CheckStoreKey(key).ok(), key);
  }

  void CheckCopy() const {
    size_t bytes = 0;
    const std::vector<StoredValue> all = store_.copy.List("");
    std::string last;
    for (const StoredValue& value : all) {
      FUZZ_CHECK(CheckStoreKey(value.key).ok() && CheckStoreValue(value.key, value.value).ok(), value.key);
      FUZZ_CHECK(value.key > last, "keys out of order");
      FUZZ_CHECK(value.revision >= 1, value.key);
      last = value.key;
      bytes += value.key.size() + value.value.size();
    }
    FUZZ_CHECK(all.size() == store_.copy.key_count(), std::to_string(all.size()));
    FUZZ_CHECK(bytes == store_.copy.byte_count(), std::to_string(bytes));
    FUZZ_CHECK(store_.copy.lost_revision() == 0 || store_.copy.lost_revision() >= store_.copy.revision(), "lost, and found");
  }

  // What the daemon makes of the copy.
  void Refresh() {
    desk_.Refresh();
    for (const StoredValue& value : store_.copy.List(kPoliciesPrefix)) {
      store::v1::StoredPolicy stored;
      if (!stored.ParseFromString(value.value)) continue;
      const JobKey job{static_cast<uint32_t>(stored.user_id()), stored.job_name(), stored.run_id(),
                       static_cast<uint32_t>(stored.attempt())};
      CheckOffer(job, "");
    }
    for (const uint32_t attempt : {0u, 1u, 2u}) CheckOffer({1000, "job", kRunId, attempt}, "launch");
    for (const StoredValue& value : store_.copy.List(kNodesPrefix)) {
      const auto node = ParseStoredNode(value);
      if (!node) continue;
      FUZZ_CHECK(kNodesPrefix + node->node_name() == value.key, value.key);
      FUZZ_CHECK(IsPrintableUtf8(node->node_name() + node->advertise_address() + node->version()), node->ShortDebugString());
    }
  }

  void CheckOffer(const JobKey& job, const std::string& launch_id) {
    const v1::ProposedPolicy latest = desk_.Latest(job, launch_id);
    const link::PolicyFrame frame = desk_.FrameFor(job, launch_id);
    FUZZ_CHECK(frame.version == static_cast<uint64_t>(latest.version()), latest.ShortDebugString());
    if (latest.version() == 0) return;
    FUZZ_CHECK(latest.version() > 0, latest.ShortDebugString());
    FUZZ_CHECK(frame.content_hash == link::PolicyContentHash(frame), "another content than the hash tells");
    FUZZ_CHECK(CheckPolicy(latest.policy()).ok() && CheckPolicy(latest.former_policy()).ok(), latest.ShortDebugString());
    CheckShown(latest.actor() + latest.node_name());
  }

  FixedClock clock_;
  CopiedStore store_;
  PolicyDesk desk_{&store_, &clock_, "node-a"};
};

void Errors(Input& in) {
  const EtcdOptions options{};
  const grpc::Status status(static_cast<grpc::StatusCode>(in.Below(17)), in.Text());
  (void)(IsTokenError(status) || IsAuthOff(status));
  const absl::Status told = EtcdError(status, "127.0.0.1:2379", options);
  FUZZ_CHECK(told.ok() == status.ok(), told.ToString());
  FUZZ_CHECK(IsPrintableUtf8(told.message()), std::string(told.message()));
  (void)(IsTooLongForUs(told) || IsTransient(told));
  etcdserverpb::TxnResponse response;
  if (!response.ParsePartialFromString(in.Text())) return;
  const auto present = PresentValue(response);
  FUZZ_CHECK(!present || response.responses_size() == 1, "a value of no answer");
  const std::string prefix = in.Rest(), end = PrefixEnd(prefix);
  FUZZ_CHECK(end == std::string(1, '\0') || end > prefix, "an empty range");
}

// Header and checksum are mended where the input says so, for what lies behind them.
std::string Mended(const std::string& body) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : body) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return SeedBuilder().Raw("ggstore1").Number(static_cast<uint64_t>(body.size())).Number(hash).Raw(body);
}

void File(Input& in) {
  const bool mend = in.Coin();
  const std::string bytes = mend ? Mended(in.Rest()) : in.Rest();
  const auto image = DecodeStoreFile(bytes);
  if (!image.ok()) {
    FUZZ_CHECK(absl::IsDataLoss(image.status()) && IsPrintableUtf8(image.status().message()), image.status().ToString());
    return;
  }
  for (const auto& [key, value] : image->values) {
    FUZZ_CHECK(key == value.key && CheckStoreKey(key).ok() && value.revision >= 1 && value.revision <= image->revision, key);
  }
  const auto again = DecodeStoreFile(EncodeStoreFile(*image));
  FUZZ_CHECK(again.ok() && again->revision == image->revision && again->values.size() == image->values.size(),
             again.status().ToString());
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const auto pair = [](unsigned key, unsigned value, unsigned revision, const std::string& change = "") {
    SeedBuilder seed;
    seed.Byte(0).Byte(key).Byte(value);
    if (value < 3) seed.Byte(key == 1 ? 1 : 0);
    if (value == 2) seed.Byte(7);
    return std::string(seed.Text(change).Byte(0).Byte(revision).Byte(0));
  };
  const std::string policies = pair(0, 0, 5), later = pair(1, 0, 9), kept = pair(2, 2, 6), node = pair(3, 3, 7);
  SeedBuilder reading;
  reading.Byte(kEtcdMode).Byte(kBegin);
  for (const std::string& one : {policies, kept, node}) reading.Byte(kRead).Byte(0).Raw(one);
  seeds.push_back(SeedBuilder().Raw(reading).Byte(kFinish).Byte(20).Byte(0).Byte(kRefresh));
  seeds.push_back(SeedBuilder()
                      .Raw(reading)
                      .Byte(kFinish)
                      .Byte(4)
                      .Byte(0)
                      .Byte(kWatch)
                      .Byte(0)
                      .Byte(2)
                      .Byte(0)
                      .Raw(later)
                      .Byte(1)
                      .Raw(node)
                      .Byte(kRefresh));
  seeds.push_back(SeedBuilder().Byte(kEtcdMode).Byte(kRange).Byte(9).Byte(3).Raw(kept).Raw(node).Raw(policies).Byte(kRefresh));
  store::v1::StoredPolicy odd;
  odd.set_actor("a\nb");
  odd.mutable_policy()->set_bucket_bytes(1);
  seeds.push_back(SeedBuilder().Byte(kEtcdMode).Byte(kRange).Byte(9).Byte(1).Raw(pair(0, 0, 5, odd.SerializeAsString())));
  seeds.push_back(SeedBuilder()
                      .Byte(kEtcdMode)
                      .Byte(kWrote)
                      .Byte(3)
                      .Byte(5)
                      .Text("value")
                      .Byte(3)
                      .Byte(0)
                      .Byte(kRemoved)
                      .Byte(3)
                      .Byte(4)
                      .Byte(kFinish)
                      .Byte(9)
                      .Byte(1)
                      .Byte(kFinish)
                      .Byte(2)
                      .Byte(1));
  etcdserverpb::TxnResponse txn;
  txn.add_responses()->mutable_response_range()->add_kvs()->set_value("v");
  for (const char* text : {"etcdserver: user name is empty", "mvcc: database space exceeded", "Peer name \x1b[1m", ""}) {
    seeds.push_back(SeedBuilder().Byte(kErrorMode).Byte(14).Text(text).Text(txn.SerializeAsString()).Raw("/g\xff"));
  }
  StoreImage image;
  image.revision = 7;
  image.values["policies/1"] = {"policies/1", "value", 3};
  const std::string bytes = EncodeStoreFile(image);
  seeds.push_back(SeedBuilder().Byte(kFileMode).Byte(0).Raw(bytes));
  seeds.push_back(SeedBuilder().Byte(kFileMode).Byte(1).Raw(bytes.substr(24)));
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradgate::fuzz::Input in(data, size);
  switch (in.Below(gradgate::fuzz::kModeCount)) {
    case gradgate::fuzz::kEtcdMode:
      gradgate::fuzz::Etcd().Run(in);
      break;
    case gradgate::fuzz::kErrorMode:
      gradgate::fuzz::Errors(in);
      break;
    case gradgate::fuzz::kFileMode:
      gradgate::fuzz::File(in);
      break;
  }
  return 0;
}
