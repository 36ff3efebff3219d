#include "examples/digits/trainer.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <type_traits>

#include "examples/digits/dataset.h"
#include "examples/digits/grid.h"
#include "examples/digits/hooks.h"
#include "examples/digits/network.h"
#include "examples/digits/plan.h"
#include "examples/digits/random.h"
#include "examples/digits/sgd.h"
#include "gradgate/gradgate.hpp"

namespace digits {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

template <typename T>
class Trainer {
 public:
  explicit Trainer(const Options& options);

  RankReport Run();

 private:
  using Net = Network<T>;

  void Connect();
  void RunWindow(const std::vector<uint32_t>& order, uint32_t window);
  void RunMicroStep(const std::vector<uint32_t>& order, uint32_t window, uint32_t micro_batch, bool last);
  double Scale(uint32_t micro_batch) const;
  double Divisor(uint32_t window, uint32_t micro_batch) const;
  void CountWindow(uint32_t window, uint32_t micro_steps);
  double HeldOutAccuracy();

  // Micro-batches that this process runs in a window: its rank's, or all of them when it stands for all ranks.
  uint32_t MicroSteps(uint32_t window) const {
    return options_.as_world > 0 ? plan_.InWindow(window) : plan_.OfRank(window, rank_);
  }
  uint32_t MicroBatch(uint32_t window, uint32_t step) const {
    return options_.as_world > 0 ? window * plan_.PerWindow() + step : plan_.MicroBatch(window, rank_, step);
  }

  const Options& options_;
  const uint32_t rank_;
  const uint32_t world_;
  const uint32_t declared_;  // micro-steps of a full window of this process
  const Dataset data_;
  Plan plan_;
  Net network_;
  Sgd<T> sgd_;
  const Hooks hooks_;
  std::optional<Grid> grid_;

  // Destroyed in reverse order: the session before the transport, that before the store.
  std::vector<std::vector<T>> own_;      // --copy: gradients in memory of ours
  std::vector<std::vector<T>> scratch_;  // --exact: one micro-batch's gradient, before rounding
  std::optional<gradgate::Store> store_;
  std::optional<gradgate::Transport> transport_;
  std::optional<gradgate::Session> session_;
  std::vector<std::span<T>> gradients_;
  std::vector<std::span<T>> targets_;  // what the backward adds to: gradients_ or scratch_
  std::vector<const Image*> batch_;

  uint64_t window_ = 0;  // over epochs
  double loss_sum_ = 0;  // of this rank, in this epoch
  uint64_t samples_ = 0;
  Counted counted_;
};

template <typename T>
Trainer<T>::Trainer(const Options& options)
    : options_(options),
      rank_(options.rank.value_or(0)),
      world_(options.rank ? options.world_size : 1),
      declared_(options.accumulate * std::max(options.as_world, 1u)),
      data_(LoadDataset(options.data, options.seed)),
      network_(options.hidden, options.seed),
      sgd_(options.lr, options.momentum),
      hooks_(options, rank_) {
  plan_.sample_count = static_cast<uint32_t>(data_.training.size());
  plan_.batch_size = options.batch;
  plan_.world = options.as_world > 0 ? options.as_world : world_;
  plan_.accumulate = options.accumulate;
  if (options.exact) grid_.emplace(plan_.world, plan_.accumulate);
  Connect();
}

// Meets the other ranks and makes the session. Alone there is nothing to meet, and the loop is the same.
template <typename T>
void Trainer<T>::Connect() {
  if (world_ > 1) {
    store_.emplace(gradgate::StoreOptions{.url = options_.rendezvous, .serve = rank_ == 0, .deadline = options_.deadline()});
    transport_.emplace(
        gradgate::Transport::Gloo(*store_, {.rank = rank_, .world_size = world_, .deadline = options_.deadline()}));
  }
  std::vector<std::string> names;
  for (uint32_t t = 0; t < Net::kTensors; ++t) names.push_back(Net::TensorName(t));
  std::vector<gg_tensor> tensors;
  for (uint32_t t = 0; t < Net::kTensors; ++t) {
    if (options_.copy) {
      own_.emplace_back(network_.TensorSize(t));
      tensors.push_back(gradgate::Own(names[t].c_str(), std::span<T>(own_.back())));
    } else {
      tensors.push_back(gradgate::View<T>(names[t].c_str(), network_.TensorSize(t)));
    }
  }
  session_.emplace(gradgate::SessionOptions{.accumulate = declared_,
                                            .mode = options_.mode,
                                            .windows = options_.windows,
                                            .divide = options_.divide,
                                            .strict = options_.strict,
                                            .job_name = options_.job,
                                            .daemon_dir = options_.daemon_dir,
                                            .bucket_bytes = options_.bucket_bytes,
                                            .deadline = options_.deadline(),
                                            .handshake_deadline = options_.deadline()},
                   tensors, transport_ ? &*transport_ : nullptr);
  for (uint32_t t = 0; t < Net::kTensors; ++t) {
    gradients_.push_back(session_->template gradient<T>(t));
    if (grid_) scratch_.emplace_back(network_.TensorSize(t));
    targets_.push_back(grid_ ? std::span<T>(scratch_.back()) : gradients_.back());
  }
}

template <typename T>
RankReport Trainer<T>::Run() {
  hooks_.Started();
  RankReport report;
  for (uint32_t epoch = 0; epoch < options_.epochs; ++epoch) {
    // One shuffle, alike on all ranks.
    const std::vector<uint32_t> order = Random(options_.seed + 1 + epoch).Permutation(plan_.sample_count);
    samples_ = 0;
    loss_sum_ = 0;
    double paused = 0;
    const Clock::time_point begin = Clock::now();
    for (uint32_t window = 0; window < plan_.Windows(); ++window, ++window_) {
      paused += hooks_.BeforeWindow(window_);
      RunWindow(order, window);
    }
    report.train_seconds += SecondsSince(begin) - paused;
    if (rank_ == 0 && !options_.quiet) {
      const double mean_loss = loss_sum_ / static_cast<double>(std::max<uint64_t>(samples_, 1));
      std::printf("epoch %*u/%u  loss %.4f  held-out %.2f %%\n", options_.epochs > 99 ? 6 : 2, epoch + 1, options_.epochs,
                  mean_loss, 100 * HeldOutAccuracy());
      std::fflush(stdout);
    }
  }
  report.rank = rank_;
  report.world_size = world_;
  report.parameter_count = network_.Parameters().size();
  report.parameter_hash = network_.Hash();
  report.bucket_count = session_->bucket_count();
  report.held_out_accuracy = HeldOutAccuracy();
  report.counted = counted_;
  report.stats = session_->stats();
  report.all_reduce = session_->collective_stats(GG_GROUP_DP, GG_OP_ALL_REDUCE);
  session_->close();
  return report;
}

// The micro-steps of one optimizer step, and the step.
template <typename T>
void Trainer<T>::RunWindow(const std::vector<uint32_t>& order, uint32_t window) {
  const uint32_t planned = MicroSteps(window);
  const uint32_t steps = planned - std::min(planned, hooks_.Dropped(window_));
  for (uint32_t step = 0; step < steps; ++step) RunMicroStep(order, window, MicroBatch(window, step), step + 1 == steps);

  // A rank without micro-batches comes here at once and takes part with zeros.
  const gg_window told = session_->step();
  CountWindow(window, steps);
  for (uint32_t t = 0; t < Net::kTensors; ++t) {
    if (told.max_micro_steps > 0) sgd_.Step(t, gradients_[t], network_.Tensor(t));
    std::fill(gradients_[t].begin(), gradients_[t].end(), T{0});
  }
}

template <typename T>
void Trainer<T>::RunMicroStep(const std::vector<uint32_t>& order, uint32_t window, uint32_t micro_batch, bool last) {
  const uint32_t first = plan_.FirstSample(micro_batch), samples = plan_.SampleCount(micro_batch);
  batch_.clear();
  for (uint32_t s = 0; s < samples; ++s) batch_.push_back(&data_.training[order[first + s]]);

  gradgate::MicroStepOptions options;
  if (options_.look_ahead) options.last = last ? GG_LAST_YES : GG_LAST_NO;
  if (options_.divide == GG_DIVIDE_ITEMS) options.items = samples;
  auto micro = session_->micro_step(options);

  hooks_.BeforeForward();
  loss_sum_ += network_.Forward(batch_).loss_sum;
  // On the grid the division comes after the rounding, where it is exact.
  const double scale = Scale(micro_batch), divisor = Divisor(window, micro_batch);
  network_.Backward(static_cast<T>(grid_ ? scale : scale / divisor), targets_, [&](uint32_t tensor) {
    if constexpr (std::is_same_v<T, double>) {
      if (grid_) grid_->AddRounded(scratch_[tensor], divisor, gradients_[tensor]);
    }
    micro.gradient_ready(tensor);
    if (last) hooks_.InLastBackward(window_);
  });
  hooks_.InMicroStep();
  micro.end();

  ++counted_.micro_steps;
  counted_.items += static_cast<uint64_t>(options.items);
  samples_ += samples;
}

// What a micro-batch's summed loss is multiplied by to become the loss that gradgate expects: with --divide items the sum
// itself, since gradgate divides by the items of all ranks; else the mean over its images.
template <typename T>
double Trainer<T>::Scale(uint32_t micro_batch) const {
  return options_.divide == GG_DIVIDE_ITEMS ? 1.0 : 1.0 / plan_.SampleCount(micro_batch);
}

// What the loss is divided by beyond that: with --divide world or active by the micro-steps that the rank actually brings to
// this window, looked ahead, so that a partial window is a mean as well. A process that stands for all ranks also does
// gradgate's division.
template <typename T>
double Trainer<T>::Divisor(uint32_t window, uint32_t micro_batch) const {
  if (options_.divide == GG_DIVIDE_ITEMS) return 1;
  const uint32_t rank = options_.as_world > 0 ? micro_batch % plan_.world : rank_;
  double divisor = plan_.OfRank(window, rank);
  if (options_.as_world > 0) divisor *= options_.divide == GG_DIVIDE_ACTIVE ? plan_.ActiveRanks(window) : plan_.world;
  return divisor;
}

// Counts what the mode asks for, from the plan alone: this is what gradgate's numbers are held against.
template <typename T>
void Trainer<T>::CountWindow(uint32_t window, uint32_t micro_steps) {
  const bool full = micro_steps == declared_;
  ++counted_.steps;
  ++(full ? counted_.windows_full : micro_steps > 0 ? counted_.windows_partial : counted_.windows_empty);
  if (world_ == 1) return;  // nobody to reduce with

  // Where every micro-step reduces, a rank that brings fewer takes part in the others' reductions with zeros.
  const bool every = options_.mode == GG_MODE_EVERY_MICRO_STEP;
  const uint32_t reductions = every ? plan_.OfRank(window, 0) : 1;
  counted_.reductions += reductions;
  if (full) counted_.reductions_in_full_windows += reductions;
  // Without looking ahead the last micro-step of a partial window was not known to be it.
  const bool in_backward = full || options_.look_ahead;
  if (!every && micro_steps > 0) counted_.suppressed += micro_steps - (in_backward ? 1 : 0);
  counted_.gradient_collectives += uint64_t{reductions} * session_->bucket_count();
  counted_.gradient_bytes += uint64_t{reductions} * network_.Parameters().size_bytes();
}

template <typename T>
double Trainer<T>::HeldOutAccuracy() {
  std::vector<const Image*> batch;
  for (const Image& image : data_.held_out) batch.push_back(&image);
  return network_.Forward(batch).correct / static_cast<double>(batch.size());
}

}  // namespace

RankReport Train(const Options& options) {
  return options.float64 ? Trainer<double>(options).Run() : Trainer<float>(options).Run();
}

}  // namespace digits
