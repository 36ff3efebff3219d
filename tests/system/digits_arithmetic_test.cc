// The trainer's arithmetic, on which the parity tests stand: every sample is used once, gradients are right, sums on the grid
// are exact.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "examples/digits/grid.h"
#include "examples/digits/network.h"
#include "examples/digits/plan.h"
#include "examples/digits/random.h"

namespace digits {
namespace {

TEST(Plan, EverySampleIsTakenOnceWhateverTheWorld) {
  for (const uint32_t samples : {1u, 46u, 47u, 48u, 1438u}) {
    for (uint32_t world = 1; world <= 4; ++world) {
      for (const uint32_t accumulate : {1u, 2u, 4u, 7u}) {
        const Plan plan{samples, 47, world, accumulate};
        std::vector<int> taken(samples);
        for (uint32_t window = 0; window < plan.Windows(); ++window) {
          uint32_t in_window = 0;
          for (uint32_t rank = 0; rank < world; ++rank) {
            EXPECT_LE(plan.OfRank(window, rank), accumulate);
            EXPECT_LE(plan.OfRank(window, rank), plan.OfRank(window, 0)) << "rank 0 brings the most";
            EXPECT_EQ(plan.OfRank(window, rank) > 0, rank < plan.ActiveRanks(window));
            in_window += plan.OfRank(window, rank);
            for (uint32_t step = 0; step < plan.OfRank(window, rank); ++step) {
              const uint32_t micro_batch = plan.MicroBatch(window, rank, step);
              ASSERT_LT(micro_batch, plan.MicroBatches());
              EXPECT_EQ(micro_batch % world, rank) << "what a single process relies on";
              for (uint32_t s = 0; s < plan.SampleCount(micro_batch); ++s) ++taken.at(plan.FirstSample(micro_batch) + s);
            }
          }
          EXPECT_EQ(in_window, plan.InWindow(window));
          EXPECT_GT(in_window, 0u);
        }
        EXPECT_THAT(taken, testing::Each(1)) << samples << " samples, world " << world << ", accumulate " << accumulate;
      }
    }
  }
}

std::vector<Image> SomeImages(uint64_t seed) {
  Random random(seed);
  std::vector<Image> images(5);
  for (Image& image : images) {
    for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(random.Below(17));
    image.label = static_cast<uint8_t>(random.Below(kClasses));
  }
  return images;
}

TEST(Network, GradientIsThatOfTheLoss) {
  constexpr uint64_t kSeed = 7;
  constexpr double kScale = 0.25, kStep = 1e-6;
  const std::vector<Image> images = SomeImages(kSeed);
  std::vector<const Image*> batch;
  for (const Image& image : images) batch.push_back(&image);
  Network<double> network(8, kSeed);
  std::vector<std::vector<double>> gradients(Network<double>::kTensors);
  std::vector<std::span<double>> spans;
  for (uint32_t t = 0; t < gradients.size(); ++t) {
    gradients[t].assign(network.TensorSize(t), 1.0);  // the backward adds
    spans.emplace_back(gradients[t]);
  }
  std::vector<uint32_t> order;
  network.Forward(batch);
  network.Backward(kScale, spans, [&](uint32_t tensor) { order.push_back(tensor); });
  EXPECT_THAT(order, testing::ElementsAre(5, 4, 3, 2, 1, 0)) << "the last layer is complete first";

  for (uint32_t t = 0; t < gradients.size(); ++t) {
    for (uint64_t i = 0; i < gradients[t].size(); i += 3) {
      double& parameter = network.Tensor(t)[i];
      const double before = parameter;
      parameter = before + kStep;
      const double above = network.Forward(batch).loss_sum;
      parameter = before - kStep;
      const double below = network.Forward(batch).loss_sum;
      parameter = before;
      EXPECT_NEAR(gradients[t][i] - 1.0, kScale * (above - below) / (2 * kStep), 1e-5) << "tensor " << t << ", element " << i;
    }
  }
}

TEST(Network, SameSeedSameBytes) {
  EXPECT_EQ(Network<float>(32, 3).Hash(), Network<float>(32, 3).Hash());
  EXPECT_NE(Network<float>(32, 3).Hash(), Network<float>(32, 4).Hash());
  EXPECT_NE(Network<float>(32, 3).Hash(), Network<float>(34, 3).Hash());
}

// Adding in any order, dividing by the world at each of the micro-steps or once: the same bytes.
TEST(Grid, SumsAndDivisionsAreExact) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (uint32_t world = 1; world <= 4; ++world) {
    for (const uint32_t accumulate : {1u, 2u, 4u, 7u}) {
      const Grid grid(world, accumulate);
      std::vector<std::vector<double>> by_rank(world, std::vector<double>(accumulate));
      double sum = 0;
      for (std::vector<double>& of_rank : by_rank) {
        for (double& value : of_rank) {
          double raw[] = {random.Uniform(-100, 100)}, rounded[] = {0.0};
          grid.AddRounded(raw, 1, rounded);
          EXPECT_EQ(raw[0], 0);
          value = rounded[0];
          sum += value;
        }
      }
      double backwards = 0, stepwise = 0;
      for (uint32_t r = world; r-- > 0;) {
        for (uint32_t s = accumulate; s-- > 0;) backwards += by_rank[r][s];
      }
      for (uint32_t s = 0; s < accumulate; ++s) {
        double reduced = 0;
        for (uint32_t r = 0; r < world; ++r) reduced += stepwise + by_rank[r][s];
        stepwise = reduced / world;
      }
      EXPECT_EQ(backwards, sum);
      EXPECT_EQ(stepwise, sum / world) << "world " << world << ", accumulate " << accumulate;
      EXPECT_EQ(std::fma(sum / world, world, -sum), 0) << "the division left no remainder";
    }
  }
}

TEST(Grid, RefusesWhatWouldNotBeExact) {
  const Grid grid(2, 4);
  double large[] = {1e5}, nan[] = {std::nan("")}, target[] = {0.0};
  EXPECT_THROW(grid.AddRounded(large, 1, target), std::range_error);
  EXPECT_THROW(grid.AddRounded(nan, 1, target), std::range_error);
  EXPECT_THROW(Grid(4, 16), std::invalid_argument);
}

}  // namespace
}  // namespace digits
