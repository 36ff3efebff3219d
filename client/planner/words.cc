#include "client/planner/words.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/planner/plan.h"

namespace gradgate::planner {
namespace {

std::string ThreeDigits(double value, absl::string_view unit) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f %s", decimals, value, unit);
}

std::string FasterButTooLarge(const Plan& plan) {
  const ModeCost& best = plan.best();
  const ModeCost* faster = nullptr;
  for (const ModeCost& cost : plan.modes) {
    if (cost.fits == false && cost.step_seconds < best.step_seconds && (!faster || cost.step_seconds < faster->step_seconds)) {
      faster = &cost;
    }
  }
  if (faster == nullptr) return "";
  return absl::StrCat("; ", Name(faster->mode), " would take ", Time(faster->step_seconds), ", but needs ",
                      Memory(faster->memory_bytes), " where ", Memory(kUsableShare * *plan.numbers.memory_limit_bytes),
                      " may be used");
}

// A mode that gains nothing for its memory.
std::string AsFastButLarger(const Plan& plan, double tolerance) {
  const ModeCost& best = plan.best();
  for (const ModeCost& cost : plan.modes) {
    const double more = cost.memory_bytes - best.memory_bytes;
    if (&cost != &best && more > 0 && cost.step_seconds <= best.step_seconds * (1 + tolerance)) {
      return absl::StrCat("; ", Name(cost.mode), " is not faster and takes ", Memory(more), " more");
    }
  }
  return "";
}

std::string MemoryUnknown(const Plan& plan) {
  const ModeCost& best = plan.best();
  const bool holds = best.mode.kept || (best.mode.sync == Sync::kWindow && plan.sharding != Sharding::kNone);
  if (!holds || best.fits) return "";
  return absl::StrCat("; it holds ", best.mode.kept ? "parameters" : "gradients", " unsharded inside the window, and whether ",
                      "the memory is there is not known: give params and memory-gib");
}

const ModeCost* PresentOf(const Plan& plan) {
  const auto found = std::find_if(plan.modes.begin(), plan.modes.end(), [](const ModeCost& cost) { return cost.present; });
  return found == plan.modes.end() ? nullptr : &*found;
}

std::string NothingGains(const Plan& plan, double tolerance) {
  if (*plan.numbers.rank_count == 1) return "one rank has nothing to reduce";
  if (*plan.numbers.accumulate == 1 && !plan.best().mode.kept) {
    return "with one micro-step per optimizer step there is nothing to defer";
  }
  return absl::StrFormat("no other mode that fits is faster by more than %.2g %%", 100 * tolerance);
}

}  // namespace

std::string Time(double seconds) {
  if (seconds >= 0.9995 || seconds == 0) return ThreeDigits(seconds, "s");
  if (seconds >= 0.9995e-3) return ThreeDigits(1e3 * seconds, "ms");
  return ThreeDigits(1e6 * seconds, "µs");
}

std::string Memory(double bytes) {
  constexpr double kMiB = 1024.0 * 1024;
  return bytes >= 1024 * kMiB ? ThreeDigits(bytes / (1024 * kMiB), "GiB") : ThreeDigits(bytes / kMiB, "MiB");
}

std::string Why(const Plan& plan, double tolerance) {
  const ModeCost& best = plan.best();
  if (best.fits == false) {
    return absl::StrCat("no mode fits: the smallest needs ", Memory(best.memory_bytes), " where ",
                        Memory(kUsableShare * *plan.numbers.memory_limit_bytes), " may be used");
  }
  const ModeCost* present = PresentOf(plan);
  if (best.present) return absl::StrCat(NothingGains(plan, tolerance), FasterButTooLarge(plan));
  if (present != nullptr && present->fits == false && present->step_seconds <= best.step_seconds) {
    return absl::StrCat("the present mode needs ", Memory(present->memory_bytes), ", more than there is");
  }
  const std::string waits = present == nullptr
                                ? ""
                                : absl::StrCat(": a step waits ", Time(best.exposed_seconds),
                                               " for its collectives instead of ", Time(present->exposed_seconds));
  return absl::StrCat(Time(best.step_seconds), " a step instead of ", Time(best.step_seconds * best.speedup), waits,
                      FasterButTooLarge(plan), AsFastButLarger(plan, tolerance), MemoryUnknown(plan));
}

std::string Advice(const Plan& plan) {
  const ModeCost& best = plan.best();
  if (best.present || best.fits == false) return absl::StrCat("stay with ", Name(best.mode), ": ", plan.why);
  return absl::StrFormat("change to %s, %.2f times as fast: %s", Name(best.mode), best.speedup, plan.why);
}

std::string Policy(const Plan& plan) {
  const Mode& best = plan.best().mode;
  if (plan.best().present) return "";
  const char* mode = best.sync == Sync::kEvery ? "every_micro_step" : best.sync == Sync::kReplica ? "window_replica" : "window";
  const bool was_kept = plan.numbers.present.value_or(Mode{}).kept;
  const char* reshard = best.kept == was_kept ? "" : best.kept ? " reshard=window" : " reshard=every_micro_step";
  return absl::StrCat("mode=", mode, reshard, " enforcement=enforce");
}

}  // namespace gradgate::planner
