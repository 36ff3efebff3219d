#include <cmath>

#include "absl/strings/str_format.h"
#include "client/cli/report_sections.h"

namespace gradgate::cli {

std::string TimeText(std::optional<double> seconds) {
  if (!seconds.has_value()) return "unknown";
  const double value = *seconds;
  const auto with_unit = [](double number, const char* unit) {
    return absl::StrFormat("%.*f %s", number < 9.995 ? 2 : number < 99.95 ? 1 : 0, number, unit);
  };
  if (value <= 0) return "0 s";
  if (value < 0.9995e-3) return with_unit(value * 1e6, "µs");
  return value < 0.9995 ? with_unit(value * 1e3, "ms") : with_unit(value, "s");
}

std::string ShareText(std::optional<double> share) {
  if (!share.has_value()) return "unknown";
  const double percent = 100 * *share;
  if (percent > 0 && percent < 0.05) return "below 0.1 %";
  return percent == 0 || percent >= 9.95 ? absl::StrFormat("%.0f %%", percent) : absl::StrFormat("%.1f %%", percent);
}

std::string CountText(std::optional<double> count) {
  if (!count.has_value()) return "unknown";
  return std::abs(*count * 10 - std::round(*count * 10)) < 0.05 ? absl::StrFormat("%.1f", *count)
                                                                : absl::StrFormat("%.2f", *count);
}

}  // namespace gradgate::cli
