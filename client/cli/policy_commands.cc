#include "client/cli/policy_commands.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/json.h"
#include "client/cli/policy_view.h"

namespace gradgate::cli {
namespace {

constexpr size_t kMaxActorBytes = 128;

std::string UserAtHost() {
  passwd entry{}, *found = nullptr;
  std::array<char, 4096> buffer{};
  (void)getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found);
  std::array<char, 256> host{};
  (void)gethostname(host.data(), host.size() - 1);
  const std::string user = found != nullptr ? found->pw_name : absl::StrCat("uid ", getuid());
  return absl::StrCat(user, "@", host.data()).substr(0, kMaxActorBytes);
}

// Writes one message as JSON or as `text`.
template <typename Message>
absl::Status Write(const Message& message, bool json, JsonStyle style, const std::string& text, Output* output) {
  if (!json) {
    output->Write(text);
    return output->status();
  }
  const auto written = ToJson(message, style);
  if (!written.ok()) return written.status();
  output->Write(*written);
  return output->status();
}

}  // namespace

absl::Status GetPolicy(const client::PolicyClient& client, const Options& options, Output* output) {
  v1::GetPolicyRequest request;
  request.set_job(options.job);
  request.set_scope(options.local ? v1::SCOPE_NODE : v1::SCOPE_JOB);
  const auto answer = client.Get(request);
  if (!answer.ok()) return answer.status();
  return Write(*answer, options.json, JsonStyle::kIndented, PolicyView(answer->status(), absl::Now()), output);
}

absl::Status SetPolicy(const client::PolicyClient& client, const Options& options, client::Cancellation* cancel, Output* output) {
  v1::SetPolicyRequest request = options.policy;
  request.set_job(options.job);
  if (request.actor().empty()) request.set_actor(UserAtHost());
  const auto answer = client.Set(request);
  if (!answer.ok()) return answer.status();
  const int64_t version = answer->status().proposed().version();
  if (request.validate_only()) {
    return Write(*answer, options.json, JsonStyle::kIndented, "valid; nothing was proposed\n", output);
  }
  if (absl::Status status = Write(*answer, options.json, JsonStyle::kOneLine, PolicyLine(answer->status()), output); !status.ok()) {
    return status;
  }
  if (options.wait <= absl::ZeroDuration()) return absl::OkStatus();
  absl::Status end = absl::FailedPreconditionError("the job ended before it adopted the policy");
  std::string last = PolicyLine(answer->status());
  const auto show = [&](const v1::PolicyStatus& status) {
    if (status.proposed().version() > version) {
      end = absl::AbortedError(absl::StrCat("version ", status.proposed().version(), ", proposed since by ",
                                            status.proposed().actor(), ", has taken the place of version ", version));
      return false;
    }
    if (status.proposed().version() < version) return true;  // this daemon has not heard of it yet
    const std::string line = PolicyLine(status);
    v1::WatchPolicyResponse message;
    *message.mutable_status() = status;
    const absl::Status written =
        line == last ? absl::OkStatus() : Write(message, options.json, JsonStyle::kOneLine, line, output);
    last = line;
    end = written;
    if (!written.ok()) return false;
    if (status.state() == v1::POLICY_STATE_ADOPTED) return false;
    end = absl::FailedPreconditionError("the policy was rejected; the job goes on as before");
    return status.state() != v1::POLICY_STATE_REJECTED;
  };
  const absl::Status watched = client.Watch(answer->status().job().run_id(), options.wait, cancel, show);
  if (absl::IsCancelled(watched)) return absl::OkStatus();
  if (absl::IsDeadlineExceeded(watched)) {
    return absl::DeadlineExceededError(absl::StrCat("version ", version, " was not adopted within ",
                                                    absl::FormatDuration(options.wait),
                                                    "; it still stands, see gradgatectl policy get"));
  }
  return watched.ok() ? end : watched;
}

absl::Status WatchPolicy(const client::PolicyClient& client, const Options& options, client::Cancellation* cancel,
                         Output* output) {
  absl::Status written;
  const absl::Status watched = client.Watch(options.job, absl::InfiniteDuration(), cancel, [&](const v1::PolicyStatus& status) {
    v1::WatchPolicyResponse message;
    *message.mutable_status() = status;
    const std::string line = absl::StrCat(absl::FormatTime("%H:%M:%S ", absl::Now(), absl::LocalTimeZone()), PolicyLine(status));
    written = Write(message, options.json, JsonStyle::kOneLine, line, output);
    return written.ok();
  });
  if (!written.ok()) return written;
  return absl::IsCancelled(watched) ? absl::OkStatus() : watched;
}

}  // namespace gradgate::cli
