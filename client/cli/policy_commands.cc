#include "client/cli/policy_commands.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/policy_view.h"
#include "client/cli/show.h"

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

// Shows what becomes of `version`, as it is told, and how that ended.
class Wait {
 public:
  Wait(int64_t version, std::string shown, bool json, Output* output)
      : version_(version), shown_(std::move(shown)), json_(json), output_(output) {}

  // False: it has ended.
  bool Show(const v1::PolicyStatus& status) {
    const v1::ProposedPolicy& proposed = status.proposed();
    if (proposed.version() < version_) return true;  // this daemon has not heard of it yet
    if (proposed.version() > version_) {
      return End(absl::AbortedError(absl::StrCat("version ", proposed.version(), ", proposed since by ", proposed.actor(),
                                                 ", has taken the place of version ", version_)));
    }
    const std::string line = PolicyLine(status);
    if (line != shown_) {
      v1::WatchPolicyResponse message;
      *message.mutable_status() = status;
      const auto written = cli::Show(
          message, json_, JsonStyle::kOneLine, [&] { return line; }, output_);
      if (!written.ok()) return End(written.status());
      shown_ = line;
    }
    if (status.state() == v1::POLICY_STATE_ADOPTED) return End(absl::OkStatus());
    if (status.state() != v1::POLICY_STATE_REJECTED) return true;
    return End(absl::FailedPreconditionError(
        absl::StrCat("version ", version_, " will not be adopted: ", status.detail(), "; the job goes on as before")));
  }

  const absl::Status& end() const { return end_; }

 private:
  bool End(absl::Status end) {
    end_ = std::move(end);
    return false;
  }

  const int64_t version_;
  std::string shown_;
  const bool json_;
  Output* const output_;
  absl::Status end_ = absl::FailedPreconditionError("the job ended before it adopted the policy");
};

}  // namespace

absl::Status GetPolicy(const client::PolicyClient& client, const Options& options, Output* output) {
  v1::GetPolicyRequest request;
  request.set_job(options.job);
  request.set_scope(options.local ? v1::SCOPE_NODE : v1::SCOPE_JOB);
  const auto answer = client.Get(request);
  if (!answer.ok()) return answer.status();
  return Show(
             *answer, options.json, JsonStyle::kIndented,
             [&] { return PolicyView(answer->status(), absl::Now(), output->columns()); }, output)
      .status();
}

absl::Status SetPolicy(const client::PolicyClient& client, const Options& options, client::Cancellation* cancel,
                       Output* output) {
  v1::SetPolicyRequest request = options.policy;
  request.set_job(options.job);
  if (request.actor().empty()) request.set_actor(UserAtHost());
  const auto answer = client.Set(request);
  if (!answer.ok()) return answer.status();
  if (request.validate_only()) {
    return Show(
               *answer, options.json, JsonStyle::kIndented, [] { return std::string("valid; nothing was proposed\n"); }, output)
        .status();
  }
  const std::string first = PolicyLine(answer->status());
  const auto written = Show(
      *answer, options.json, JsonStyle::kOneLine, [&] { return first; }, output);
  if (!written.ok() || options.wait <= absl::ZeroDuration()) return written.status();
  const int64_t version = answer->status().proposed().version();
  Wait wait(version, first, options.json, output);
  const std::string job = absl::StrCat(answer->status().job().user_id(), "/", answer->status().job().run_id());
  const absl::Time end = absl::Now() + options.wait;
  const absl::Status followed =
      client.Follow(job, options.wait, cancel, [&](const v1::PolicyStatus& status) { return wait.Show(status); });
  if (followed.ok()) return wait.end();
  const std::string stands = "; it still stands, see gradgatectl policy get";
  if (absl::IsCancelled(followed))
    return absl::CancelledError(absl::StrCat("interrupted while version ", version, " waits", stands));
  if (absl::IsDeadlineExceeded(followed) && absl::Now() >= end) {
    return absl::DeadlineExceededError(
        absl::StrCat("version ", version, " was not adopted within ", absl::FormatDuration(options.wait), stands));
  }
  return absl::Status(followed.code(), absl::StrCat("version ", version, " was proposed, then: ", followed.message(), stands));
}

absl::Status WatchPolicy(const client::PolicyClient& client, const Options& options, client::Cancellation* cancel,
                         Output* output) {
  absl::StatusOr<bool> open = true;
  const absl::Status watched = client.Watch(options.job, cancel, [&](const v1::PolicyStatus& status) {
    v1::WatchPolicyResponse message;
    *message.mutable_status() = status;
    const std::string line =
        absl::StrCat(absl::FormatTime("%H:%M:%S ", absl::Now(), absl::LocalTimeZone()), PolicyLine(status));
    open = Show(
        message, options.json, JsonStyle::kOneLine, [&] { return line; }, output);
    return open.ok() && *open;
  });
  if (!open.ok()) return open.status();
  return absl::IsCancelled(watched) ? absl::OkStatus() : watched;
}

}  // namespace gradgate::cli
