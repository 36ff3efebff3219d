#include "daemon/rpc/stats_questions.h"

#include <utility>

#include "daemon/rpc/merge_jobs.h"
#include "daemon/rpc/merge_windows.h"
#include "daemon/rpc/stats_answers.h"

namespace gradgate {

JobQuestion<v1::GetJobStatsRequest, v1::GetJobStatsResponse> StatsQuestion(Registry* registry) {
  JobQuestion<v1::GetJobStatsRequest, v1::GetJobStatsResponse> question;
  question.method = "/gradgate.v1.SyncStatsService/GetJobStats";
  question.own = [registry](const auto& asked) { return AnswerGetJobStats(asked, *registry); };
  question.job = [](const auto& part) -> const v1::Job& { return part.job(); };
  question.check = CheckJobStats;
  question.merge = MergeJobStats;
  return question;
}

absl::StatusOr<WindowsQuestion> QuestionOfWindows(const v1::ListWindowsRequest& request, const PageTokens* tokens,
                                                  Registry* registry) {
  WindowsQuestion asked{request, {}};
  asked.question.method = "/gradgate.v1.SyncStatsService/ListWindows";
  asked.question.own = [tokens, registry](const auto& part) { return AnswerListWindows(part, *tokens, *registry); };
  asked.question.job = [](const auto& part) -> const v1::Job& { return part.job(); };
  asked.question.merge = OwnPart<v1::ListWindowsResponse>;
  if (request.scope() == v1::SCOPE_NODE) return asked;
  absl::StatusOr<v1::ListWindowsRequest> part = PartOfWindowsPage(request, *tokens);
  if (!part.ok()) return part.status();
  asked.part = *std::move(part);
  asked.question.check = [part = asked.part](const auto& answer) { return CheckWindows(answer, part); };
  asked.question.merge = [request, tokens](auto parts) { return MergeWindows(std::move(parts), request, *tokens); };
  return asked;
}

}  // namespace gradgate
