// What is wrong with a job, from what its nodes know of it: pure, so that it can be asked of any evidence.
//
// Thread class: any thread. Time: linear in ranks and in the windows that each brings.

#ifndef GRADGATE_DAEMON_DOCTOR_DOCTOR_H_
#define GRADGATE_DAEMON_DOCTOR_DOCTOR_H_

#include <vector>

#include "daemon/doctor/job_facts.h"
#include "gradgate/v1/diagnosis.pb.h"

namespace gradgate {

// The worst first. A job in which nothing is worse than a notice also has a verdict HEALTHY, the last, unless
// ranks wait of whom nobody can say how long they may.
std::vector<v1::Verdict> Diagnose(const Evidence& evidence);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_DOCTOR_DOCTOR_H_
