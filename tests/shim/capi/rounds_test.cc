// A round by itself: two ranks as threads over the in-process transport.

#include "shim/capi/rounds.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "shim/reduce/in_process_transport.h"
#include "shim/stats/recorder.h"
#include "tests/shim/capi/job.h"

namespace gradgate {
namespace {

using ::testing::ElementsAre;

// The hub holds the second bucket back until a rank has got the first one: were buckets handed back at the end alone, nobody
// would come.
TEST(Rounds, GradientsOfABucketComeBackWhileTheNextOneTravels) {
  constexpr uint64_t kSecondBucket = 3;  // after the ballot and the first bucket
  Job job(2);
  std::promise<void> first_is_back;
  std::atomic<bool> came{false};
  job.hub().SetHook([&](uint64_t number) {
    if (number == kSecondBucket)
      came = first_is_back.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  });
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      std::unique_ptr<Recorder> recorder;
      ASSERT_TRUE(Recorder::Create({}, &recorder).ok());
      ArrivalBoard board(&job.store(), "t/", rank, 2);
      Reducer reducer({{nullptr, 4, DType::kFloat32}, {nullptr, 4, DType::kFloat32}}, 16);
      ASSERT_EQ(reducer.bucket_count(), 2u);
      Rounds rounds({.transport = job.hub().transport(rank),
                     .board = &board,
                     .recorder = recorder.get(),
                     .reducer = &reducer,
                     .deadline_ns = 30 * kTestSecond});
      RoundInput input;
      input.ballot = {.window = 0, .mode = 2, .micro_steps = 1, .contributes = 1, .closes = 1};
      reducer.Reset(true);
      rounds.Start(input);
      RoundOutcome outcome;
      std::vector<uint32_t> buckets;
      const Status status = rounds.Finish(&outcome, [&](uint32_t bucket, const RoundOutcome&) {
        if (bucket == 0 && rank == 0) first_is_back.set_value();
        buckets.push_back(bucket);
      });
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_THAT(buckets, ElementsAre(0, 1));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_TRUE(came);
}

}  // namespace
}  // namespace gradgate
