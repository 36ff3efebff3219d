// What a watcher of a whole job is told, made from answers of ListWindows over all nodes, one after the other. Pure.
//
//   finding --(the job, and where it is)--> following --(a node answers again, or has more ranks)--> catching up --> following
//                                               └──(the job has ended, or nobody has it any longer)--> over
//
// A window is told once every running rank seen has closed it; nodes that do not answer are named, not waited for. What was
// told without some rank of the job is remembered, and its other ranks are told when their node answers again, before anything
// later of them: so windows of one rank come in their order. Remembered are at most kRemembered windows of single ranks, the
// latest.
//
// One thread.

#ifndef GRADGATE_DAEMON_RPC_WATCHED_JOB_H_
#define GRADGATE_DAEMON_RPC_WATCHED_JOB_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate {

class WatchedJob {
 public:
  // How long nodes that do not answer keep a watch open where nobody else has more to tell.
  static constexpr absl::Duration kPatience = absl::Seconds(30);
  static constexpr size_t kRemembered = 4096;

  // As in WatchWindowsRequest.
  WatchedJob(std::string selector, std::optional<int64_t> first_index)
      : selector_(std::move(selector)), first_index_(first_index) {}

  // What to ask next, of all nodes.
  v1::ListWindowsRequest Question() const;

  struct News {
    std::vector<v1::WatchWindowsResponse> messages;
    bool more = false;                // ask again at once
    std::optional<absl::Status> end;  // after the messages; OK: the last of them has the ended job
  };
  // What the answer to Question() adds. Not after an end.
  News Take(absl::StatusOr<v1::ListWindowsResponse> answer, absl::Time now);

  // That were asked last.
  size_t node_count() const { return nodes_.size(); }

 private:
  enum class Phase { kFinding, kFollowing, kCatchingUp };

  News TakeError(const absl::Status& status, absl::Time now);
  // Whether ranks may be there now that were missing.
  bool TakeNodes(v1::ListWindowsResponse& answer, News* news);
  void Find(const v1::ListWindowsResponse& answer);
  void Follow(v1::ListWindowsResponse& answer, absl::Time now, News* news);
  void CatchUp(v1::ListWindowsResponse& answer, News* news);
  void End(const v1::ListWindowsResponse& answer, absl::Time now, News* news);
  void Remember(const v1::Window& window);

  std::string selector_;  // once the job was found, its user and run id
  const std::optional<int64_t> first_index_;
  Phase phase_ = Phase::kFinding;
  v1::Job job_;
  std::vector<v1::NodeAnswer> nodes_;  // as told last
  int64_t rank_count_ = 0;             // seen
  int64_t next_index_ = 0;             // not told yet
  bool begun_ = false;                 // where the first window is was looked up, so that others may be missed
  int64_t behind_index_ = 0;           // where catching up is

  // Windows that were told without some rank: the ranks that they were told with.
  std::map<int64_t, std::set<int32_t>> remembered_;
  size_t remembered_count_ = 0;
  int64_t forgotten_count_ = 0;        // of them, since the last catching up
  int64_t lagging_index_ = INT64_MAX;  // below which a rank was that had not closed all that was told; INT64_MAX: none

  std::optional<absl::Time> nobody_since_;  // has the job
  std::optional<absl::Time> ended_since_;   // as far as those that answer know
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_WATCHED_JOB_H_
