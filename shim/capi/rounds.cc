#include "shim/capi/rounds.h"

#include <time.h>

#include <algorithm>

#include "shim/capi/member.h"
#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;

constexpr uint64_t Tag(TrafficClass traffic, uint32_t micro_step) {
  return static_cast<uint64_t>(traffic) | static_cast<uint64_t>(micro_step) << 8;
}

}  // namespace

Rounds::~Rounds() {
  if (in_flight_.load(std::memory_order_acquire) == 0) return;
  c_.transport->Abort("the session was destroyed");
  // The transport still owns the buckets; it gives them back by the requests' deadline.
  const int64_t end_ns = std::max(deadline_ns_, MonotonicNs()) + kSecond;
  while (in_flight_.load(std::memory_order_acquire) != 0 && MonotonicNs() < end_ns) {
    const timespec pause{0, kMs};
    nanosleep(&pause, nullptr);
  }
}

void Rounds::Done(void* user, uint64_t tag, bool ok, int64_t start_ns, int64_t done_ns) {
  auto* self = static_cast<Rounds*>(user);
  const auto traffic = static_cast<TrafficClass>(tag & 0xff);
  self->c_.recorder->CollectiveDone(GroupRole::kDp, CollectiveOp::kAllReduce, traffic, ok, static_cast<uint32_t>(tag >> 8),
                                    start_ns, done_ns);
  if (traffic == TrafficClass::kGradient) {
    (ok ? self->gradient_completed_ : self->gradient_failed_).fetch_add(1, std::memory_order_relaxed);
    self->last_done_ns_.store(done_ns, std::memory_order_relaxed);
  }
  self->in_flight_.fetch_sub(1, std::memory_order_release);
}

AllReduceRequest Rounds::Request(TrafficClass traffic) const {
  AllReduceRequest request;
  request.deadline_ns = deadline_ns_;
  request.done = &Rounds::Done;
  request.user = const_cast<Rounds*>(this);
  request.tag = Tag(traffic, static_cast<uint32_t>(input_.ballot.micro_steps));
  return request;
}

Ticket Rounds::StartOurs(std::vector<int64_t>& words, ReduceOp op) {
  AllReduceRequest request = Request(TrafficClass::kOurs);
  request.data = words.data();
  request.element_count = words.size();
  request.dtype = DType::kInt64;
  request.op = op;
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  c_.recorder->CollectiveIssued(GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kOurs, words.size() * sizeof(int64_t),
                                1, false, static_cast<uint32_t>(input_.ballot.micro_steps), MonotonicNs());
  last_ = c_.transport->Start(request);
  return last_;
}

void Rounds::Start(const RoundInput& input) {
  input_ = input;
  started_ = true;
  posted_ = false;
  last_issue_ns_ = 0;
  bucket_tickets_.clear();
  deadline_ns_ = MonotonicNs() + c_.deadline_ns - NamingBudget(c_.deadline_ns);
  const auto words = input.ballot.Encode();
  ballot_words_.assign(words.begin(), words.end());
  ballot_ticket_ = StartOurs(ballot_words_, ReduceOp::kMax);
  Recorder::AddOwned(c_.recorder->page().totals.ballot_count, 1);
  if (c_.sums) {
    sum_words_ = {input.items, input.newly_active ? 1 : 0};
    StartOurs(sum_words_, ReduceOp::kSum);
  }
}

void Rounds::LaunchReady() {
  while (c_.reducer->NextReady()) {
    const uint32_t bucket = c_.reducer->next();
    if (bucket == 0) {
      page::RoleTotals& role = c_.recorder->page().roles[static_cast<uint32_t>(GroupRole::kDp)];
      Recorder::AddOwned(role.issued_count, 1);
      ++counts_.issued_reductions;
      if (input_.late) {
        Recorder::AddOwned(role.late_count, 1);
        ++counts_.late_reductions;
      }
    }
    last_issue_ns_ = MonotonicNs();
    in_flight_.fetch_add(1, std::memory_order_relaxed);
    c_.recorder->CollectiveIssued(GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient,
                                  c_.reducer->bucket_bytes(bucket), c_.reducer->bucket_tensors(bucket), input_.intended,
                                  static_cast<uint32_t>(input_.ballot.micro_steps), last_issue_ns_);
    ++counts_.issued_collectives;
    counts_.intended_collectives += input_.intended;
    counts_.gradient_bytes += c_.reducer->bucket_bytes(bucket);
    last_ = c_.reducer->Launch(*c_.transport, Request(TrafficClass::kGradient));
    bucket_tickets_.push_back(last_);
  }
}

// The gradients of a bucket come back while the next one travels.
Status Rounds::WaitForBuckets(RoundOutcome* outcome, const BucketDone& bucket_done) {
  for (uint32_t bucket = 0; bucket < bucket_tickets_.size(); ++bucket) {
    const Status status = Wait(bucket_tickets_[bucket]);
    if (!status.ok()) return status;
    outcome->items = c_.sums ? sum_words_[0] : 0;  // was started before the first bucket
    outcome->active_ranks = c_.sums ? sum_words_[1] : 0;
    if (!outcome->ballot.incompatible()) bucket_done(bucket, *outcome);
  }
  return Wait(last_);
}

Status Rounds::Finish(RoundOutcome* outcome, const BucketDone& bucket_done) {
  started_ = false;
  if (input_.ballot.contributes) {
    c_.reducer->MarkAllReady();
    LaunchReady();
  }
  Status status = Wait(ballot_ticket_);
  if (!status.ok()) return Explain(status);
  outcome->ballot = BallotResult(std::span<const int64_t, Ballot::kWords>(ballot_words_));
  if (!input_.ballot.contributes && outcome->ballot.any_contributes()) {
    if (input_.zero) c_.reducer->Zero();
    c_.reducer->MarkAllReady();
    LaunchReady();
  }
  status = WaitForBuckets(outcome, bucket_done);
  if (!status.ok()) return Explain(status);
  outcome->reduced = outcome->ballot.any_contributes();
  outcome->items = c_.sums ? sum_words_[0] : 0;
  outcome->active_ranks = c_.sums ? sum_words_[1] : 0;
  outcome->last_issue_ns = last_issue_ns_;
  outcome->complete_ns = outcome->reduced ? last_done_ns_.load(std::memory_order_relaxed) : 0;
  outcome->differences.clear();
  const bool incompatible = outcome->ballot.incompatible();
  if (!incompatible && !(c_.name_unequal && outcome->ballot.unequal())) return OkStatus();
  status = NameDifferences(&outcome->differences);
  if (!status.ok()) return Explain(status);
  if (!incompatible) return OkStatus();
  c_.transport->Abort("ranks disagree");
  return Aborted("ranks are not in the same window, round and mode: " + outcome->differences);
}

Status Rounds::NameDifferences(std::string* text) {
  const uint32_t world_size = c_.transport->world_size();
  name_words_.assign(world_size * Ballot::kFields, 0);
  const auto fields = input_.ballot.Fields();
  std::copy(fields.begin(), fields.end(), name_words_.begin() + c_.transport->rank() * Ballot::kFields);
  const Status status = Wait(StartOurs(name_words_, ReduceOp::kSum));
  if (status.ok()) *text = DescribeDifferences(name_words_, world_size);
  return status;
}

// Waits in two parts: only a rank that has waited for a while tells the others where it is.
Status Rounds::Wait(Ticket ticket) {
  if (!posted_) {
    const int64_t soon_ns = MonotonicNs() + std::min(kSecond, c_.deadline_ns / 4);
    const Status status = c_.transport->Wait(ticket, std::min(soon_ns, deadline_ns_));
    if (status.code() != Code::kDeadlineExceeded) return status;
    posted_ = true;
    c_.board->Arrived(static_cast<uint64_t>(input_.ballot.window), static_cast<uint64_t>(input_.ballot.round),
                      NamingBudget(c_.deadline_ns) / 2);
  }
  return c_.transport->Wait(ticket, deadline_ns_);
}

// Turns the transport's failure into one that names ranks; the other ranks are cut off, so that they look for the missing one
// too.
Status Rounds::Explain(const Status& status) {
  const auto window = static_cast<uint64_t>(input_.ballot.window);
  const auto round = static_cast<uint64_t>(input_.ballot.round);
  const int64_t budget_ns = NamingBudget(c_.deadline_ns);
  c_.transport->Abort("a collective failed on another rank");
  c_.board->GaveUp(window, round, budget_ns / 4);
  const std::string missing = c_.board->DescribeMissing(window, round, budget_ns / 2);
  // So that what failed is counted as failed before the window is.
  (void)c_.transport->Wait(last_, MonotonicNs() + budget_ns / 4);
  const std::string where = "window " + std::to_string(window) + (input_.late ? ", reduced late" : "");
  const std::string who = missing.empty() ? "all ranks came and live, but the connection between them broke" : missing;
  return {status.code(), where + ": " + who + " [" + status.message() + "]"};
}

void Rounds::ResetCounts() {
  counts_ = {};
  gradient_completed_.store(0, std::memory_order_relaxed);
  gradient_failed_.store(0, std::memory_order_relaxed);
}

}  // namespace gradgate
