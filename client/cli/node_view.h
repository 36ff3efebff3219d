// What is shown of the daemons that were asked. Pure functions; any thread.

#ifndef GRADGATE_CLIENT_CLI_NODE_VIEW_H_
#define GRADGATE_CLIENT_CLI_NODE_VIEW_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "google/protobuf/repeated_field.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::cli {

// A line that begins with "!" for each node that did not answer, or whose answer is odd. That the daemon answers for its own
// node alone is said only where `ranks_missing`: the job has ranks that are not in the answer.
std::string NodeProblems(const google::protobuf::RepeatedPtrField<v1::NodeAnswer>& nodes, bool ranks_missing);

// The same of answers that follow each other: of each only what has changed.
class NodeNews {
 public:
  std::string Next(const google::protobuf::RepeatedPtrField<v1::NodeAnswer>& nodes);

 private:
  std::vector<v1::NodeAnswer> former_;
};

// Ranks that are in the answer about a job.
int RanksOf(const v1::Job& job);

// Problems, a table of the daemons, and the store: `gradgatectl nodes`. `width`: of a line; 0: any.
std::string NodesView(const v1::ListNodesResponse& response, absl::Time now, size_t width = 0);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_NODE_VIEW_H_
