// A unary call about one job, answered from the parts of all nodes: the own part, the others' by Peers, and one merge.
//
//   asked --(scope NODE, or nobody else there)--> merge(own part) --> answered
//     └──> others asked --> whose job is it --(some answered another run of that name)--> those asked again by run id --> merge
//     --> answered
//
// Whose job it is: (uid, name, run id, attempt) tells jobs apart, on all nodes. A selector may mean another run on each node,
// so the run is chosen from all answers, by the rules of GetJobStatsRequest.job. Parts of another user's job with the same run
// id are left out, and told in the node's note. A caller that goes away cancels the calls to the others.
//
// Thread class: any thread. `own` and `merge` are called on gRPC's threads, one at a time, and must not block.

#ifndef GRADGATE_DAEMON_RPC_JOB_CALL_H_
#define GRADGATE_DAEMON_RPC_JOB_CALL_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/rpc/peers.h"
#include "gradgate/v1/stats.pb.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

// One node's part of an answer.
template <typename Response>
struct Part {
  size_t node;  // in Parts::nodes
  Response answer;
};

// What the nodes answered.
template <typename Response>
struct Parts {
  std::vector<Part<Response>> parts;  // of one job; the own one first, if any, then by node name; never empty
  std::vector<v1::NodeAnswer> nodes;  // all that were asked, this daemon first; notes may be added
};

// How a service answers for a job. Request has `job` and `scope`.
template <typename Request, typename Response>
struct JobQuestion {
  std::string method;                                              // "/gradgate.v1.SyncStatsService/GetJobStats"
  std::function<absl::StatusOr<Response>(const Request&)> own;     // of this node alone
  std::function<const v1::Job&(const Response&)> job;              // the job that a part is of
  std::function<absl::StatusOr<Response>(Parts<Response>)> merge;  // may be called with the own part alone
};

// The reactor for a service's method. Errors: those of `own` and `merge`; NOT_FOUND only if no node that answered has the job.
//   return AnswerForJob<v1::GetJobStatsRequest, v1::GetJobStatsResponse>(context, *request, response, peers, question);
// `peers` may be null. What the question's functions refer to lives until the server is shut down.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* AnswerForJob(grpc::CallbackServerContext* context, const Request& request, Response* response,
                                       Peers* peers, JobQuestion<Request, Response> question);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_JOB_CALL_H_
