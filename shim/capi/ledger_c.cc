// gradgate.h's ledger over class Ledger: checks arguments, converts, and lets no exception out.

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "shim/capi/convert.h"
#include "shim/capi/handles.h"
#include "shim/capi/ledger.h"
#include "shim/capi/read_stats.h"
#include "shim/capi/resolve_options.h"
#include "shim/include/gradgate/gradgate.h"

namespace gradgate {
namespace {

// What no rank means is read as the nearest that one could.
uint32_t Count(int64_t value) {
  return static_cast<uint32_t>(std::clamp<int64_t>(value, 0, std::numeric_limits<uint32_t>::max()));
}

uint32_t Flag(bool value) { return value ? 1 : 0; }

Status CheckFlag(const char* name, uint32_t value) {
  return value <= 1 ? OkStatus() : InvalidArgument(std::string(name) + " is " + std::to_string(value) + "; it is 0 or 1");
}

// Zero-terminated; cut before the character that does not fit whole.
Status CopyText(const std::string& from, char* text, size_t capacity) {
  if (!text) return IsNull("text");
  if (capacity == 0) return InvalidArgument("capacity is 0; text needs room for its end");
  size_t bytes = std::min(from.size(), capacity - 1);
  if (bytes < from.size()) {
    while (bytes > 0 && (from[bytes] & 0xc0) == 0x80) --bytes;
  }
  std::memcpy(text, from.data(), bytes);
  text[bytes] = '\0';
  return OkStatus();
}

Status CreateLedger(const gg_ledger_options* in, gg_ledger** out) {
  gg_ledger_options options = GG_LEDGER_OPTIONS_INIT;
  const Status read = ReadStruct(in, "options", &options);
  if (!read.ok()) return read;
  if (!out) return IsNull("out");
  LedgerOptions resolved;
  const Status checked = ResolveOptions(options, &resolved);
  if (!checked.ok()) return checked;
  auto handle = std::make_unique<gg_ledger>();
  const Status created = Ledger::Create(std::move(resolved), &handle->ledger);
  if (created.ok()) *out = handle.release();
  return created;
}

Status ToBallot(const gg_vote* in, Ballot* out) {
  gg_vote vote = GG_VOTE_INIT;
  const Status read = ReadStruct(in, "vote", &vote);
  if (!read.ok()) return read;
  for (const auto& [name, value] : {std::pair("vote.contributes", vote.contributes),
                                    {"vote.discard", vote.discard},
                                    {"vote.out_of_data", vote.out_of_data},
                                    {"vote.sums", vote.sums}}) {
    const Status checked = CheckFlag(name, value);
    if (!checked.ok()) return checked;
  }
  out->contributes = vote.contributes;
  out->skipped = vote.skipped;
  out->discard = vote.discard;
  out->out_of_data = vote.out_of_data;
  out->sums = vote.sums;
  out->divisor = vote.divisor;
  out->parity = vote.parity;
  out->headroom = vote.headroom_bytes;
  out->staged = vote.staged;
  return OkStatus();
}

Status CheckWords(const int64_t* words, uint32_t count, uint32_t expected) {
  if (!words) return IsNull("words");
  if (count == expected) return OkStatus();
  return InvalidArgument("count is " + std::to_string(count) + "; it must be " + std::to_string(expected));
}

gg_verdict ToVerdict(const BallotResult& ballot, bool equal_windows) {
  const Ballot& low = ballot.min();
  const Ballot& high = ballot.max();
  gg_verdict verdict = GG_VERDICT_INIT;
  verdict.differs = Flag(ballot.differs(equal_windows));
  verdict.incompatible = Flag(ballot.incompatible());
  verdict.unequal = Flag(ballot.unequal());
  verdict.min_micro_steps = Count(low.micro_steps);
  verdict.max_micro_steps = Count(high.micro_steps);
  verdict.all_contribute = Flag(low.contributes > 0);
  verdict.any_contribute = Flag(high.contributes > 0);
  verdict.min_skipped = Count(low.skipped);
  verdict.max_skipped = Count(high.skipped);
  verdict.any_discard = Flag(high.discard > 0);
  verdict.all_out_of_data = Flag(low.out_of_data > 0);
  verdict.any_out_of_data = Flag(high.out_of_data > 0);
  verdict.any_sums = Flag(high.sums > 0);
  verdict.min_divisor = Count(low.divisor);
  verdict.max_divisor = Count(high.divisor);
  verdict.parity_differs = Flag(low.parity != high.parity);
  verdict.staged_equal = Flag(low.staged == high.staged);
  verdict.min_headroom_bytes = low.headroom;
  verdict.staged = high.staged;
  return verdict;
}

Status ToEnd(const gg_window_end* in, LedgerWindowEnd* out) {
  gg_window_end end = GG_WINDOW_END_INIT;
  const Status read = ReadStruct(in, "end", &end);
  if (!read.ok()) return read;
  for (const auto& [name, value] : {std::pair("end.stepped", end.stepped),
                                    {"end.failed", end.failed},
                                    {"end.discarded", end.discarded},
                                    {"end.disagreed", end.disagreed}}) {
    const Status checked = CheckFlag(name, value);
    if (!checked.ok()) return checked;
  }
  if (end.item_count_local < 0 || end.item_count_global < 0 || end.wait_ns < 0)
    return InvalidArgument("end has a negative item_count or wait_ns");
  *out = {.stepped = end.stepped == 1,
          .failed = end.failed == 1,
          .discarded = end.discarded == 1,
          .disagreed = end.disagreed == 1,
          .min_micro_steps = end.min_micro_steps,
          .max_micro_steps = end.max_micro_steps,
          .active_ranks = end.active_ranks,
          .skipped = end.skipped,
          .items = end.item_count_local,
          .global_items = end.item_count_global,
          .wait_ns = end.wait_ns};
  return OkStatus();
}

Status SetMode(Ledger& ledger, gg_mode mode) {
  if (mode < GG_MODE_EVERY_MICRO_STEP || mode > GG_MODE_WINDOW_REPLICA) {
    return InvalidArgument("mode is " + std::to_string(mode) +
                           "; use GG_MODE_EVERY_MICRO_STEP, GG_MODE_WINDOW or GG_MODE_WINDOW_REPLICA");
  }
  return ledger.SetMode(static_cast<SyncMode>(mode));
}

bool Known(gg_group group, gg_op op, gg_traffic traffic) {
  return group < kGroupRoleCount && op < kCollectiveOpCount && traffic < kTrafficClassCount;
}

}  // namespace
}  // namespace gradgate

using gradgate::Guarded;
using gradgate::InvalidArgument;
using gradgate::IsNull;
using gradgate::Status;

extern "C" {

gg_status_t gg_ledger_create(const gg_ledger_options* options, gg_ledger** out, gg_error* error) {
  return Guarded(error, [&] { return gradgate::CreateLedger(options, out); });
}

gg_enforcement gg_ledger_enforcement(const gg_ledger* ledger) {
  return ledger ? static_cast<gg_enforcement>(ledger->ledger->enforcement()) : 0;
}

gg_status_t gg_ledger_micro_step_begin(gg_ledger* ledger, uint32_t last, uint32_t* closes, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    if (!closes) return IsNull("closes");
    if (last > GG_LAST_YES) return InvalidArgument("last is " + std::to_string(last) + "; use a GG_LAST_ constant");
    bool ends = false;
    Status begun = ledger->ledger->BeginMicroStep(static_cast<gradgate::Last>(last), &ends);
    if (begun.ok()) *closes = ends ? 1 : 0;
    return begun;
  });
}

gg_status_t gg_ledger_micro_step_end(gg_ledger* ledger, gg_error* error) {
  return Guarded(error, [&] { return ledger ? ledger->ledger->EndMicroStep() : IsNull("ledger"); });
}

gg_status_t gg_ledger_micro_step_abandon(gg_ledger* ledger, gg_error* error) {
  return Guarded(error, [&] { return ledger ? ledger->ledger->AbandonMicroStep() : IsNull("ledger"); });
}

gg_status_t gg_ledger_place(gg_ledger* ledger, gg_place* out, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    const gradgate::WindowEngine& engine = ledger->ledger->engine();
    gg_place place = GG_PLACE_INIT;
    place.in_micro_step = engine.state() == gradgate::WindowEngine::State::kInMicroStep ? 1 : 0;
    place.window_index = engine.counts().window_index;
    place.micro_steps = engine.counts().micro_steps;
    place.mode = static_cast<gg_mode>(ledger->ledger->mode_in_force());
    return gradgate::WriteStruct(place, "out", out);
  });
}

gg_status_t gg_ledger_vote(gg_ledger* ledger, const gg_vote* vote, int64_t* words, uint32_t capacity, uint32_t* count,
                           gg_error* error) {
  return Guarded(error, [&]() -> Status {
    using gradgate::Ballot;
    if (!ledger) return IsNull("ledger");
    if (!count) return IsNull("count");
    if (!words) {
      *count = Ballot::kWords;
      return gradgate::OkStatus();
    }
    if (capacity < Ballot::kWords) {
      return InvalidArgument("capacity is " + std::to_string(capacity) + "; a ballot has " + std::to_string(Ballot::kWords) +
                             " words, give GG_VOTE_CAPACITY");
    }
    Ballot ballot;
    Status status = gradgate::ToBallot(vote, &ballot);
    if (!status.ok()) return status;
    std::array<int64_t, Ballot::kWords> encoded;
    status = ledger->ledger->Vote(ballot, &encoded);
    if (!status.ok()) return status;
    std::copy(encoded.begin(), encoded.end(), words);
    *count = Ballot::kWords;
    return status;
  });
}

gg_status_t gg_ledger_verdict(gg_ledger* ledger, const int64_t* words, uint32_t count, gg_verdict* out, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    using gradgate::Ballot;
    if (!ledger) return IsNull("ledger");
    const Status checked = gradgate::CheckWords(words, count, Ballot::kWords);
    if (!checked.ok()) return checked;
    const gradgate::BallotResult ballot(std::span<const int64_t, Ballot::kWords>(words, Ballot::kWords));
    ledger->ledger->Read(ballot);
    const bool equal_windows = !ledger->ledger->options().variable_windows;
    return gradgate::WriteStruct(gradgate::ToVerdict(ballot, equal_windows), "out", out);
  });
}

gg_status_t gg_ledger_policy_offered(gg_ledger* ledger, gg_policy* out, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    return gradgate::WriteStruct(gradgate::ToC(ledger->ledger->stage().unvetted(), 0), "out", out);
  });
}

gg_status_t gg_ledger_policy_answer(gg_ledger* ledger, uint64_t version, gg_rejection rejection, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    if (rejection >= gradgate::kPolicyRejectionCount)
      return InvalidArgument("rejection is " + std::to_string(rejection) + "; use a GG_REJECTION_ constant");
    return ledger->ledger->AnswerPolicy(version, static_cast<gradgate::PolicyRejection>(rejection));
  });
}

gg_status_t gg_ledger_policy_get(gg_ledger* ledger, gg_policy* out, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    const gradgate::PolicyStage& stage = ledger->ledger->stage();
    return gradgate::WriteStruct(gradgate::ToC(stage.in_force(), stage.adopted_window()), "out", out);
  });
}

gg_status_t gg_ledger_describe(gg_ledger* ledger, const int64_t* rows, uint32_t count, char* text, size_t capacity,
                               gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    const uint32_t world_size = ledger->ledger->options().world_size;
    const uint32_t expected = world_size * gradgate::Ballot::kFields;
    const Status checked = gradgate::CheckWords(rows, count, expected);
    if (!checked.ok()) return checked;
    return gradgate::CopyText(gradgate::DescribeDifferences({rows, count}, world_size), text, capacity);
  });
}

gg_status_t gg_ledger_arrived(gg_ledger* ledger, gg_error* error) {
  return Guarded(error, [&] { return ledger ? ledger->ledger->Arrived() : IsNull("ledger"); });
}

gg_status_t gg_ledger_missing(gg_ledger* ledger, char* text, size_t capacity, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    std::string who;
    const Status cleared = gradgate::CopyText(who, text, capacity);
    if (!cleared.ok()) return cleared;
    const Status looked = ledger->ledger->Missing(&who);
    return looked.ok() ? gradgate::CopyText(who, text, capacity) : looked;
  });
}

gg_status_t gg_ledger_fail(gg_ledger* ledger, const char* why, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    return why ? ledger->ledger->Fail(why) : IsNull("why");
  });
}

gg_status_t gg_ledger_late_begin(gg_ledger* ledger, gg_error* error) {
  return Guarded(error, [&] { return ledger ? ledger->ledger->LateBegin() : IsNull("ledger"); });
}

gg_status_t gg_ledger_window_close(gg_ledger* ledger, const gg_window_end* end, gg_window* out, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    Status checked = gradgate::CheckWindow(out);
    gradgate::LedgerWindowEnd known;
    if (checked.ok()) checked = gradgate::ToEnd(end, &known);
    if (!checked.ok()) return checked;
    gradgate::ClosedWindow report;
    const Status closed = ledger->ledger->CloseWindow(known, &report);
    return closed.ok() && out ? gradgate::WriteStruct(gradgate::ToC(report), "out", out) : closed;
  });
}

gg_status_t gg_ledger_set_mode(gg_ledger* ledger, gg_mode mode, gg_error* error) {
  return Guarded(error, [&] { return ledger ? gradgate::SetMode(*ledger->ledger, mode) : IsNull("ledger"); });
}

gg_status_t gg_ledger_warn(gg_ledger* ledger, const char* reason, const char* message, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    if (!reason) return IsNull("reason");
    return message ? ledger->ledger->Warn(reason, message) : IsNull("message");
  });
}

gg_status_t gg_ledger_predict(gg_ledger* ledger, uint32_t micro_steps, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    return ledger->ledger->Predict(micro_steps);
  });
}

gg_status_t gg_ledger_declare_extra(gg_ledger* ledger, gg_group group, uint32_t count, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    const Status checked = gradgate::CheckCell(group, GG_OP_ALL_REDUCE);
    return checked.ok() ? ledger->ledger->DeclareExtra(static_cast<gradgate::GroupRole>(group), count) : checked;
  });
}

int64_t gg_ledger_collective_issued(gg_ledger* ledger, gg_group group, gg_op op, gg_traffic traffic, uint64_t bytes,
                                    uint32_t tensors) {
  if (!ledger || !gradgate::Known(group, op, traffic)) return 0;
  return ledger->ledger->counts().Issued(static_cast<gradgate::GroupRole>(group), static_cast<gradgate::CollectiveOp>(op),
                                         static_cast<gradgate::TrafficClass>(traffic), bytes, tensors);
}

void gg_ledger_collective_done(gg_ledger* ledger, gg_group group, gg_op op, gg_traffic traffic, int64_t issue_ns,
                               gg_outcome outcome) {
  if (!ledger || !gradgate::Known(group, op, traffic) || outcome > GG_OUTCOME_UNKNOWN) return;
  ledger->ledger->counts().Done(static_cast<gradgate::GroupRole>(group), static_cast<gradgate::CollectiveOp>(op),
                                static_cast<gradgate::TrafficClass>(traffic), issue_ns,
                                static_cast<gradgate::Outcome>(outcome));
}

uint32_t gg_ledger_issued(const gg_ledger* ledger, gg_group group) {
  if (!ledger || group >= gradgate::kGroupRoleCount) return 0;
  return ledger->ledger->counts().gradient_collectives(static_cast<gradgate::GroupRole>(group));
}

uint32_t gg_ledger_trainer_issued(const gg_ledger* ledger, gg_group group) {
  if (!ledger || group >= gradgate::kGroupRoleCount) return 0;
  return ledger->ledger->counts().trainer_collectives(static_cast<gradgate::GroupRole>(group));
}

gg_status_t gg_ledger_role_stats_get(gg_ledger* ledger, gg_group group, gg_role_stats* out, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    const Status checked = gradgate::CheckCell(group, GG_OP_ALL_REDUCE);
    if (!checked.ok()) return checked;
    return gradgate::WriteStruct(gradgate::ReadRole(ledger->ledger->page().roles[group]), "out", out);
  });
}

gg_status_t gg_ledger_stats_get(gg_ledger* ledger, gg_stats* out, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    return gradgate::WriteStruct(gradgate::ReadStats(ledger->ledger->page(), ledger->ledger->linked()), "out", out);
  });
}

gg_status_t gg_ledger_collective_stats_get(gg_ledger* ledger, gg_group group, gg_op op, gg_collective_stats* out,
                                           gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!ledger) return IsNull("ledger");
    const Status checked = gradgate::CheckCell(group, op);
    if (!checked.ok()) return checked;
    return gradgate::WriteStruct(gradgate::ReadCell(ledger->ledger->page().cells[group][op]), "out", out);
  });
}

gg_status_t gg_ledger_close(gg_ledger* ledger, gg_error* error) {
  return Guarded(error, [&] { return ledger ? ledger->ledger->Close() : IsNull("ledger"); });
}

void gg_ledger_destroy(gg_ledger* ledger) {
  if (ledger && ledger->ledger->forked()) return;
  delete ledger;
}

}  // extern "C"
