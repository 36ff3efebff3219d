// Answers as a gradgated could give them, for tests of the client and of what gradgatectl shows.

#ifndef GRADGATE_TESTS_CLIENT_SAMPLES_H_
#define GRADGATE_TESTS_CLIENT_SAMPLES_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::testing {

// The instant that samples are seen at: 83 s after SampleJob started.
absl::Time SampleNow();

// RUNNING, 2 of 2 ranks, N = 4, mode window, 126 windows.
v1::Job SampleJob(const std::string& name);

// SampleJob's counts: 126 windows on each of 2 ranks, the last of them partial and late, nothing wrong.
v1::GetJobStatsResponse SampleStats(const std::string& name);

// A full window of 2 ranks with nothing wrong.
v1::Window SampleWindow(int64_t index);

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_CLIENT_SAMPLES_H_
