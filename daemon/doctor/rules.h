// The rules: each looks at the facts for one kind of trouble and adds a verdict where it finds it. Pure functions.
//
// A rule says what numbers show and no more; where they do not tell, it says "not known". None compares clocks of two machines.

#ifndef GRADGATE_DAEMON_DOCTOR_RULES_H_
#define GRADGATE_DAEMON_DOCTOR_RULES_H_

#include <string>
#include <vector>

#include "daemon/doctor/job_facts.h"
#include "daemon/doctor/words.h"
#include "gradgate/v1/diagnosis.pb.h"

namespace gradgate::doctor {

using Verdicts = std::vector<v1::Verdict>;

// Ends and standstills.
void FindEndedRanks(const JobFacts& facts, Verdicts& out);  // RANK_LOST, RANK_FAILED; what followed from them is part of it
void FindStopped(const JobFacts& facts, Verdicts& out);     // STOPPED, and that others wait for it
void FindHang(const JobFacts& facts, Verdicts& out);        // HUNG
void FindWaiting(const JobFacts& facts, Verdicts& out);     // WAITING; nothing where a rule above has found who stands

// What windows say of their reductions.
void FindUnreduced(const JobFacts& facts, Verdicts& out);      // NOT_REDUCED
void FindFailedWindows(const JobFacts& facts, Verdicts& out);  // WINDOW_FAILED
void FindWaste(const JobFacts& facts, Verdicts& out);          // WASTED_REDUCTIONS
void FindLate(const JobFacts& facts, Verdicts& out);           // REDUCED_LATE
void FindUnstepped(const JobFacts& facts, Verdicts& out);      // UNSTEPPED
void FindOverrides(const JobFacts& facts, Verdicts& out);      // OVERRIDDEN
void FindRefusals(const JobFacts& facts, Verdicts& out);       // STEP_REFUSED
void FindLogging(const JobFacts& facts, Verdicts& out);        // LOGGING_COLLECTIVES

// Ranks against each other.
void FindApart(const JobFacts& facts, Verdicts& out);      // RANKS_APART
void FindDisagreed(const JobFacts& facts, Verdicts& out);  // RANKS_DISAGREED
void FindDiffering(const JobFacts& facts, Verdicts& out);  // RANKS_DIFFER
void FindPolicy(const JobFacts& facts, Verdicts& out);     // POLICY_NOT_ADOPTED

// Time.
void FindStragglers(const JobFacts& facts, Verdicts& out);  // STRAGGLER
void FindSlowing(const JobFacts& facts, Verdicts& out);     // SLOW_COMMUNICATION

// What could not be looked at.
void FindUnseen(const JobFacts& facts, Verdicts& out);  // RANKS_UNSEEN
void FindSilent(const JobFacts& facts, Verdicts& out);  // NODE_SILENT
void FindStore(const JobFacts& facts, Verdicts& out);   // STORE_UNREACHABLE
void FindMissed(const JobFacts& facts, Verdicts& out);  // RECORDS_MISSED

// The verdict of a job in which no rule found more than a notice.
v1::Verdict Healthy(const JobFacts& facts);

// Shared by the rules.

// Where each running rank has its loop, for comparing: windows first, then what was issued in the open one.
struct Position {
  int64_t window_index = 0;
  int32_t gradient_issued_count = 0;
  int32_t ours_issued_count = 0;
  auto operator<=>(const Position&) const = default;
};
Position PositionOf(const Rank& rank);

RankSet Numbers(const std::vector<Rank>& ranks);
// "rank 1 on host-b, pid 4711: in window 7, micro-step 3 of 4; last seen to move 20 s ago"; of many the first.
void AddRankLines(const std::vector<Rank>& ranks, v1::Verdict& verdict);
// "rank 1 on host-b (node b), pid 4711"
std::string Who(const Rank& rank);

// Ranks of the job that no answer tells of; of a great many the first.
RankSet UnseenRanks(const JobFacts& facts);

// Running ranks that a signal has stopped, or that a debugger has held for longer than a look takes.
std::vector<Rank> StoppedRanks(const JobFacts& facts);

// Running ranks that have waited in a collective of their open window for longer than is normal in this job.
std::vector<Rank> WaitingTooLong(const JobFacts& facts);

v1::Verdict MakeVerdict(v1::VerdictKind kind, v1::Severity severity, std::string headline, const RankSet& ranks = {});
void SetWindows(int64_t first, int64_t last, v1::Verdict& verdict);

}  // namespace gradgate::doctor

#endif  // GRADGATE_DAEMON_DOCTOR_RULES_H_
