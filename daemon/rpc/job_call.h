// A unary call answered from the parts of all nodes: the own part, the others' by Peers, and one merge.
//
//   asked --(scope NODE, or nobody else there)--> merge(own part) --> answered
//     └──> others asked --> whose job is it --(some answered another run of that name)--> those asked again by uid and run id
//     --> merge
//     --> answered
//
// Whose job it is: (uid, name, run id, attempt) tells jobs apart, on all nodes. A selector may mean another run on each node,
// so the run is chosen from all answers, by the rules of GetJobStatsRequest.job. Parts of another user's job with the same run
// id are left out, and told in the node's note. All rounds have one deadline. A caller that goes away cancels the calls to the
// others.
//
// Thread class: any thread. `own` and `merge` are called on gRPC's threads, one at a time, and must not block.

#ifndef GRADGATE_DAEMON_RPC_JOB_CALL_H_
#define GRADGATE_DAEMON_RPC_JOB_CALL_H_

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/node/job_selector.h"
#include "daemon/node/mutex.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/job_choice.h"
#include "daemon/rpc/parts.h"
#include "daemon/rpc/peers.h"
#include "daemon/rpc/presentable.h"
#include "gradgate/v1/stats.pb.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

// How a service answers. Request has `scope`, and `job` where the question's `job` is set.
template <typename Request, typename Response>
struct JobQuestion {
  std::string method;                                           // "/gradgate.v1.SyncStatsService/GetJobStats"
  std::function<absl::StatusOr<Response>(const Request&)> own;  // of this node alone
  std::function<const v1::Job&(const Response&)> job;           // the job that a part is of; not set: parts are of no one job
  std::function<absl::Status(const Response&)> check;           // whether another node's part can be one; not set: any can
  std::function<absl::StatusOr<Response>(Parts<Response>)> merge;
};

// One question under way.
template <typename Request, typename Response>
class JobAsking final : public std::enable_shared_from_this<JobAsking<Request, Response>> {
 public:
  using Done = std::function<void(absl::StatusOr<Response>)>;

  JobAsking(const Request& request, Peers* peers, JobQuestion<Request, Response> question, Done done)
      : request_(request), peers_(peers), question_(std::move(question)), done_(std::move(done)) {}

  // `done` is called once, maybe before this returns.
  void Start(absl::Time caller_deadline) {
    deadline_ = Peers::DeadlineFor(caller_deadline, absl::Now());
    absl::StatusOr<Response> own = question_.own(request_);
    if (!own.ok() && !(question_.job && absl::IsNotFound(own.status()))) return FinishWith(own.status());
    v1::NodeAnswer self;
    self.set_answered(true);
    answers_.push_back({peers_ != nullptr ? peers_->Self() : self, std::move(own)});
    if (peers_ == nullptr || request_.scope() == v1::SCOPE_NODE) {
      return answers_[0].answer.ok() ? Merge() : FinishWith(answers_[0].answer.status());
    }
    Ask(request_, std::nullopt, [this](std::vector<PeerAnswer<Response>> answers) {
      for (auto& answer : answers) answers_.push_back(std::move(answer));
      TakeFirstRound();
    });
  }

  // `done` comes all the same, soon.
  void Cancel() {
    std::shared_ptr<Asking> asking;
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
      asking = asking_;
    }
    if (asking != nullptr) asking->Cancel();
  }

 private:
  using Answers = std::vector<PeerAnswer<Response>>;

  void Ask(const Request& request, const std::optional<absl::flat_hash_set<std::string>>& only,
           std::function<void(Answers)> done) {
    const auto self = this->shared_from_this();  // `done` may end this call before AskAll returns
    auto asking = peers_->AskAll<Response>(
        question_.method, request, deadline_,
        [self, done = std::move(done)](Answers answers) {
          for (PeerAnswer<Response>& answer : answers) self->Check(answer);
          done(std::move(answers));
        },
        only);
    bool cancelled;
    {
      MutexLock lock(&mutex_);
      cancelled = cancelled_;
      asking_ = asking;
    }
    if (cancelled) asking->Cancel();
  }

  std::string Selector() const {
    if constexpr (requires { request_.job(); }) return request_.job();
    return "";
  }

  void Check(PeerAnswer<Response>& answer) const {
    if (!answer.answer.ok() || !question_.check) return;
    const absl::Status status = question_.check(*answer.answer);
    if (status.ok()) return;
    answer.answer = absl::DataLossError(status.message());
    answer.node.set_answered(false);
    answer.node.set_error(absl::StrCat("its answer is broken: ", status.message()));
  }

  void TakeFirstRound() {
    if (!question_.job) return Merge();
    std::vector<JobClaim> claims;
    std::vector<size_t> unclear;  // there several users claim the run
    for (size_t i = 0; i < answers_.size(); ++i) {
      PeerAnswer<Response>& answer = answers_[i];
      if (answer.answer.ok()) {
        claims.push_back({i, question_.job(*answer.answer)});
      } else if (absl::IsInvalidArgument(answer.answer.status())) {
        unclear.push_back(i);
      }
    }
    if (!unclear.empty() && (claims.empty() || !IsWholeRunId(Selector()))) {
      const PeerAnswer<Response>& answer = answers_[unclear.front()];  // there the selector means several jobs
      return FinishWith(absl::InvalidArgumentError(
          absl::StrCat("node ", answer.node.node_name(), ": ", Presentable(answer.answer.status().message()))));
    }
    if (claims.empty()) return Merge();
    absl::StatusOr<JobChoice> choice = ChooseJob(Selector(), claims);
    if (!choice.ok()) return FinishWith(choice.status());
    for (auto& [node, note] : choice->strays) AddNote(note, answers_[node].node);
    job_ = choice->job;
    choice->ask_again.insert(choice->ask_again.end(), unclear.begin(), unclear.end());
    AskAgain(choice->ask_again);
  }

  void AskAgain(const std::vector<size_t>& nodes) {
    Request request = request_;
    if constexpr (requires { request.set_job(""); }) request.set_job(FormatJobSelector(job_->user_id(), job_->run_id()));
    absl::flat_hash_set<std::string> names;
    for (const size_t node : nodes) {
      answers_[node].answer = absl::NotFoundError("");
      if (node == 0) {
        answers_[node].answer = question_.own(request);
      } else {
        names.insert(answers_[node].node.node_name());
      }
    }
    if (names.empty()) return Merge();
    Ask(request, names, [this](Answers answers) {
      for (PeerAnswer<Response>& answer : answers) {
        for (size_t i = 1; i < answers_.size(); ++i) {
          if (answers_[i].node.node_name() != answer.node.node_name()) continue;
          answers_[i] = std::move(answer);
          break;
        }
      }
      Merge();
    });
  }

  void Merge() {
    Parts<Response> parts;
    for (size_t i = 0; i < answers_.size(); ++i) {
      PeerAnswer<Response>& answer = answers_[i];
      const absl::Status& status = answer.answer.status();
      if (status.ok() && (!job_ || SameJob(*job_, question_.job(*answer.answer)))) {
        parts.parts.push_back({i, *std::move(answer.answer)});
      } else if (status.ok()) {
        const std::string note = StrayNote(*job_, question_.job(*answer.answer));
        if (!note.empty() && answer.node.note().empty()) answer.node.set_note(note);
      } else if (answer.node.answered() && !absl::IsNotFound(status)) {
        answer.node.set_answered(false);
        answer.node.set_error(absl::StrCat("refused the question: ", Presentable(status.message())));
      }
      parts.nodes.push_back(std::move(answer.node));
    }
    if (question_.job && parts.parts.empty()) return FinishWith(NoSuchJob(Selector(), parts.nodes));
    done_(question_.merge(std::move(parts)));
  }

  void FinishWith(const absl::Status& status) { done_(status); }

  const Request request_;
  Peers* const peers_;
  const JobQuestion<Request, Response> question_;
  const Done done_;
  absl::Time deadline_;
  Answers answers_;             // this node's first; touched by one callback at a time
  std::optional<v1::Job> job_;  // the chosen one

  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Asking> asking_ ABSL_GUARDED_BY(mutex_);
};

// A service's call that waits for a Question: something with Start(caller_deadline) and Cancel(). Lives until gRPC is done with
// it.
template <typename Question, typename Response>
class AskingCall final : public grpc::ServerUnaryReactor {
 public:
  // `make` makes the Question from what it is to call once, with the answer.
  template <typename Make>
  static AskingCall* Start(absl::Time caller_deadline, Response* response, Make make) {
    const std::shared_ptr<AskingCall> call(new AskingCall());
    call->self_ = call;
    call->question_ = make([reactor = call.get(), response](absl::StatusOr<Response> answer) {
      const grpc::Status status = ToGrpc(answer.status());
      if (answer.ok()) *response = *std::move(answer);
      reactor->Finish(status);
    });
    const auto question = call->question_;  // gRPC may be done with the call before Start returns
    question->Start(caller_deadline);
    return call.get();
  }

 private:
  AskingCall() = default;
  void OnDone() override { const auto last = std::move(self_); }
  void OnCancel() override { question_->Cancel(); }

  std::shared_ptr<Question> question_;
  std::shared_ptr<AskingCall> self_;
};

// The reactor for a service's method. Errors: those of `own` and `merge`; NOT_FOUND only if no node that answered has the job.
//   return AnswerForJob(context, *request, response, peers, question);
// `peers` may be null. What the question's functions refer to lives until the server is shut down.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* AnswerForJob(grpc::CallbackServerContext* context, const Request& request, Response* response,
                                       Peers* peers, JobQuestion<Request, Response> question) {
  using Question = JobAsking<Request, Response>;
  return AskingCall<Question, Response>::Start(absl::FromChrono(context->deadline()), response, [&](auto done) {
    return std::make_shared<Question>(request, peers, std::move(question), std::move(done));
  });
}

// The same for a thread that may wait: until `deadline`, and Peers::kMaxWait.
template <typename Request, typename Response>
absl::StatusOr<Response> AskForJob(absl::Time deadline, const Request& request, Peers* peers,
                                   JobQuestion<Request, Response> question) {
  const auto answer =
      std::make_shared<std::promise<absl::StatusOr<Response>>>();  // the other thread may be in it for longer than this
  const auto asking = std::make_shared<JobAsking<Request, Response>>(
      request, peers, std::move(question), [answer](absl::StatusOr<Response> got) { answer->set_value(std::move(got)); });
  asking->Start(deadline);
  return answer->get_future().get();
}

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_JOB_CALL_H_
