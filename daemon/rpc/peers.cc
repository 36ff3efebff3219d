#include "daemon/rpc/peers.h"

#include <algorithm>
#include <atomic>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/node/mutex.h"
#include "daemon/rpc/fan_out.h"
#include "daemon/rpc/fields.h"
#include "daemon/rpc/peer_book.h"
#include "daemon/rpc/presentable.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace gradgate {
namespace {

using store::v1::StoredNode;

constexpr absl::Duration kTelling = absl::Milliseconds(750);  // who is silent for so long is asked briefly for a while
constexpr double kCallersShare = 0.8;                         // of its time may be spent on waiting for others

std::string Silent(absl::Duration given, bool brief) {
  const std::string text = absl::StrCat(
      "did not answer within ", absl::FormatDuration(absl::Floor(given + absl::Milliseconds(5), absl::Milliseconds(10))));
  return brief ? absl::StrCat(text, ", nor a longer question shortly before") : text;
}

// Why a status means that the daemon gave no answer; empty where it is one. `brief`: it was silent not long ago.
std::string NoAnswer(const grpc::Status& status, absl::Duration given, bool brief) {
  const std::string message = Presentable(status.error_message());
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::OUT_OF_RANGE:
      return "";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return Silent(given, brief);
    case grpc::StatusCode::CANCELLED:
      return "the question was given up before it answered";
    case grpc::StatusCode::UNAVAILABLE:
      return absl::StrCat("cannot be reached: ", message);
    case grpc::StatusCode::UNIMPLEMENTED:
      return "does not know this question; it is another version of gradgated, or no gradgated";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return absl::StrCat("its answer cannot be taken: ", message);
    case grpc::StatusCode::DATA_LOSS:
      return message;
    default:
      return absl::StrCat("failed with code ", static_cast<int>(status.error_code()), ": ", message);
  }
}

// What all questions share; outlives Peers where calls are still ending.
struct Core {
  explicit Core(const PeersOptions& options) : book(options.tls, options.max_answer_bytes) {}

  PeerBook book;
  std::atomic<size_t> question_count{0};  // whose done has not returned
  std::atomic<size_t> call_count{0};
  Mutex mutex;
  absl::flat_hash_map<const FanOut*, std::weak_ptr<FanOut>> under_way ABSL_GUARDED_BY(mutex);
};

class FanOutAsking final : public Asking {
 public:
  explicit FanOutAsking(std::shared_ptr<FanOut> fan_out) : fan_out_(std::move(fan_out)) {}
  void Cancel() override { fan_out_->Cancel(); }

 private:
  const std::shared_ptr<FanOut> fan_out_;
};

class StorePeers final : public Peers {
 public:
  StorePeers(const Store* store, const PeersOptions& options)
      : store_(store), options_(options), core_(std::make_shared<Core>(options)) {}
  ~StorePeers() override;

  const PeersOptions& options() const override { return options_; }
  std::vector<StoredNode> Known() const override;
  v1::NodeAnswer Self() const override;

 private:
  // A call, or why there is none: then `answers` has the reason.
  struct Planned {
    std::vector<Raw> answers;
    std::vector<size_t> answer_of;  // of each call
    std::vector<bool> briefly;      // likewise
    std::vector<FanOut::Call> calls;
  };

  std::shared_ptr<Asking> Ask(absl::string_view method, std::string request, absl::Time deadline,
                              const std::optional<absl::flat_hash_set<std::string>>& only, Parse parse, RawDone done) override;
  Planned Plan(const std::optional<absl::flat_hash_set<std::string>>& only, absl::Time deadline, absl::Time now);
  size_t TakeCalls(size_t wanted);
  static void Take(FanOut::End& end, absl::Duration given, bool brief, const Parse& parse, Raw& answer);

  const Store* const store_;
  const PeersOptions options_;
  const std::shared_ptr<Core> core_;
};

StorePeers::~StorePeers() {
  std::vector<std::shared_ptr<FanOut>> under_way;
  {
    MutexLock lock(&core_->mutex);
    for (const auto& [key, weak] : core_->under_way) {
      if (auto fan_out = weak.lock()) under_way.push_back(std::move(fan_out));
    }
  }
  for (const auto& fan_out : under_way) fan_out->Cancel();
  for (size_t count; (count = core_->question_count.load()) != 0;) core_->question_count.wait(count);
}

std::vector<StoredNode> StorePeers::Known() const {
  std::vector<StoredNode> nodes;
  if (store_ == nullptr) return nodes;
  for (const StoredValue& entry : store_->List(kNodesPrefix)) {
    std::optional<StoredNode> node = ParseStoredNode(entry);
    if (!node || node->node_name() == options_.node_name) continue;
    // The same daemon under a former name, whose lease has not ended yet.
    if (!options_.address.empty() && node->advertise_address() == options_.address) continue;
    nodes.push_back(*std::move(node));
  }
  std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a.node_name() < b.node_name(); });
  return nodes;
}

v1::NodeAnswer StorePeers::Self() const {
  v1::NodeAnswer self;
  self.set_node_name(options_.node_name);
  self.set_answered(true);
  const StoreHealth health = store_ != nullptr ? store_->Health() : StoreHealth{};
  if (!health.reachable) {
    self.set_note(absl::StrCat("the store cannot be reached, so nodes are those last known: ", Presentable(health.trouble)));
  } else if (!health.shared && Known().empty()) {
    self.set_note("no common store (gradgated --store): answers for its own node alone");
  }
  return self;
}

StorePeers::Planned StorePeers::Plan(const std::optional<absl::flat_hash_set<std::string>>& only, absl::Time deadline,
                                     absl::Time now) {
  const std::vector<StoredNode> known = Known();
  core_->book.KeepOnly(known);
  Planned plan;
  for (const StoredNode& node : known) {
    if (only && !only->contains(node.node_name())) continue;
    PeerBook::Way way = core_->book.WayTo(node, now);
    Raw& answer = plan.answers.emplace_back();
    answer.node.set_node_name(node.node_name());
    answer.node.set_address(node.advertise_address());
    if (way.channel == nullptr) {
      answer.status = way.trouble;
      answer.node.set_error(std::string(way.trouble.message()));
      continue;
    }
    plan.answer_of.push_back(plan.answers.size() - 1);
    plan.briefly.push_back(way.briefly);
    plan.calls.push_back({std::move(way.channel), way.briefly ? std::min(deadline, now + kBriefly) : deadline});
  }
  const size_t allowed = TakeCalls(plan.calls.size());
  for (size_t i = allowed; i < plan.calls.size(); ++i) {
    Raw& answer = plan.answers[plan.answer_of[i]];
    answer.status = absl::ResourceExhaustedError("was not asked: too many questions to other nodes are under way");
    answer.node.set_error(std::string(answer.status.message()));
  }
  plan.calls.resize(allowed);
  return plan;
}

// How many of the wanted calls may be made; they are counted as under way.
size_t StorePeers::TakeCalls(size_t wanted) {
  size_t before = core_->call_count.load();
  for (;;) {
    const size_t taken = std::min(wanted, options_.max_calls - std::min(options_.max_calls, before));
    if (core_->call_count.compare_exchange_weak(before, before + taken)) return taken;
  }
}

void StorePeers::Take(FanOut::End& end, absl::Duration given, bool brief, const Parse& parse, Raw& answer) {
  if (end.status.ok()) {
    grpc::ProtoBufferReader bytes(&end.answer);
    answer.response = parse(&bytes);
    if (answer.response == nullptr) {
      end.status = grpc::Status(grpc::StatusCode::DATA_LOSS,
                                absl::StrCat("answered ", end.answer.Length(), " bytes that are no answer to this question"));
    }
  }
  answer.status = absl::Status(static_cast<absl::StatusCode>(end.status.error_code()), end.status.error_message());
  answer.node.set_error(NoAnswer(end.status, given, brief));
  answer.node.set_answered(answer.node.error().empty());
  Set(end.duration, answer.node.mutable_answer_duration());
}

std::shared_ptr<Asking> StorePeers::Ask(absl::string_view method, std::string request, absl::Time deadline,
                                        const std::optional<absl::flat_hash_set<std::string>>& only, Parse parse,
                                        RawDone done) {
  const absl::Time now = absl::Now();
  const auto plan = std::make_shared<Planned>(Plan(only, deadline, now));
  auto fan_out = std::make_shared<FanOut>(std::string(method), std::move(request), options_.max_total_bytes);
  core_->question_count.fetch_add(1);
  {
    MutexLock lock(&core_->mutex);
    core_->under_way.emplace(fan_out.get(), fan_out);
  }
  const auto ended = [core = core_, plan, now](size_t i, const FanOut::End& end) {
    core->call_count.fetch_sub(1);
    const FanOut::Call& call = plan->calls[i];
    const std::string& name = plan->answers[plan->answer_of[i]].node.node_name();
    if (end.status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) {
      core->book.Answered(name, call.channel.get());
    } else if (call.deadline - now >= kBriefly) {  // less proves nothing
      const bool in_full = call.deadline - now >= kTelling;
      core->book.Silent(name, call.channel.get(), in_full ? absl::Now() + kBrieflyFor : absl::InfinitePast());
    }
  };
  const auto all_ended = [core = core_, key = fan_out.get(), plan, now, parse = std::move(parse),
                          done = std::move(done)](std::vector<FanOut::End> ends) {
    for (size_t i = 0; i < ends.size(); ++i) {
      Take(ends[i], plan->calls[i].deadline - now, plan->briefly[i], parse, plan->answers[plan->answer_of[i]]);
    }
    {
      MutexLock lock(&core->mutex);
      core->under_way.erase(key);
    }
    done(std::move(plan->answers));
    core->question_count.fetch_sub(1);
    core->question_count.notify_all();
  };
  fan_out->Start(plan->calls, ended, all_ended);
  return std::make_shared<FanOutAsking>(std::move(fan_out));
}

}  // namespace

std::unique_ptr<Peers> Peers::Create(const Store* store, const PeersOptions& options) {
  return std::make_unique<StorePeers>(store, options);
}

absl::Time Peers::DeadlineFor(absl::Time caller_deadline, absl::Time now) {
  if (caller_deadline <= now) return now;
  return now + std::min(kMaxWait, (caller_deadline - now) * kCallersShare);
}

}  // namespace gradgate
