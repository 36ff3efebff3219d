#include "client/cli/top_rates.h"

#include <algorithm>

#include "client/cli/format.h"

namespace gradgate::cli {
namespace {

std::optional<double> Divide(double dividend, double divisor) {
  if (divisor <= 0) return std::nullopt;
  return dividend / divisor;
}

Counted Difference(const Counted& now, const Counted& before, absl::Duration span) {
  Counted out;
  out.span = span;
  out.step_count = now.step_count - before.step_count;
  out.issued_count = now.issued_count - before.issued_count;
  out.intended_count = now.intended_count - before.intended_count;
  out.declared_extra_count = now.declared_extra_count - before.declared_extra_count;
  out.gradient_bytes = now.gradient_bytes - before.gradient_bytes;
  out.exposed = now.exposed - before.exposed;
  out.wait = now.wait - before.wait;
  out.window = now.window - before.window;
  return out;
}

bool WentBack(const Counted& now, const Counted& before) {
  return now.step_count < before.step_count || now.issued_count < before.issued_count ||
         now.intended_count < before.intended_count || now.declared_extra_count < before.declared_extra_count ||
         now.gradient_bytes < before.gradient_bytes || now.exposed < before.exposed || now.wait < before.wait ||
         now.window < before.window;
}

}  // namespace

std::optional<double> Counted::StepsPerSecond() const {
  return Divide(static_cast<double>(step_count), absl::ToDoubleSeconds(span) * rank_count);
}
std::optional<double> Counted::BytesPerSecond() const {
  return Divide(static_cast<double>(gradient_bytes), absl::ToDoubleSeconds(span));
}
std::optional<double> Counted::ReductionsPerStep() const {
  return Divide(static_cast<double>(issued_count), static_cast<double>(step_count));
}
std::optional<double> Counted::IntendedPerStep() const {
  return Divide(static_cast<double>(intended_count), static_cast<double>(step_count));
}
std::optional<double> Counted::ExposedShare() const {
  return Divide(absl::ToDoubleSeconds(exposed), absl::ToDoubleSeconds(window));
}
std::optional<double> Counted::WaitShare() const { return Divide(absl::ToDoubleSeconds(wait), absl::ToDoubleSeconds(window)); }
std::optional<double> Counted::WastedShare() const {
  const int64_t wasted = std::max<int64_t>(0, issued_count - intended_count - declared_extra_count);
  return Divide(static_cast<double>(wasted), static_cast<double>(issued_count));
}

void Counted::Add(const Counted& other) {
  span = std::max(span, other.span);
  step_count += other.step_count;
  issued_count += other.issued_count;
  intended_count += other.intended_count;
  declared_extra_count += other.declared_extra_count;
  gradient_bytes += other.gradient_bytes;
  exposed += other.exposed;
  wait += other.wait;
  window += other.window;
  rank_count += other.rank_count;
}

Counted CountedOf(const v1::SyncTotals& totals) {
  Counted out;
  out.step_count = totals.step_count();
  out.issued_count = totals.reduction_issued_count();
  out.intended_count = totals.reduction_intended_count();
  out.declared_extra_count = totals.reduction_declared_extra_count();
  out.gradient_bytes = totals.gradient_bytes();
  out.exposed = ToDuration(totals.exposed_duration());
  out.wait = ToDuration(totals.wait_duration());
  out.window = ToDuration(totals.window_duration());
  return out;
}

void Rates::Add(absl::Time at, const Counted& counters) {
  if (!readings_.empty() && (at <= readings_.back().at || WentBack(counters, readings_.back().counters))) readings_.clear();
  readings_.push_back({at, counters});
  while (readings_.size() > 1 && readings_[1].at <= at - kLong) readings_.pop_front();
}

std::optional<Counted> Rates::Recent() const {
  if (readings_.size() < 2) return std::nullopt;
  const Reading& now = readings_.back();
  const auto since = [&](const Reading& before) { return Difference(now.counters, before.counters, now.at - before.at); };
  const auto recent = std::find_if(readings_.rbegin() + 1, readings_.rend(),
                                   [&](const Reading& reading) { return now.at - reading.at >= kShort; });
  if (recent != readings_.rend()) {
    const Counted added = since(*recent);
    if (added.step_count >= kEnoughSteps) return added;
  }
  const Counted added = since(readings_.front());
  if (added.span < kLeast || (added.step_count == 0 && added.span < kShort)) return std::nullopt;
  return added;
}

std::optional<Counted> Rates::ForRatios() const {
  const std::optional<Counted> recent = Recent();
  if (recent.has_value() && recent->step_count >= kEnoughSteps) return recent;
  if (readings_.empty()) return std::nullopt;
  return readings_.back().counters;
}

}  // namespace gradgate::cli
