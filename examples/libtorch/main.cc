// A data-parallel trainer on libtorch: ranks of one machine over c10d's Gloo, with gradients reduced at every micro-step, then
// once a window.
//
//     train [RANKS [STEPS [EXTRA]]]        prints what each way cost, and whether both end with the same bytes
//
// Weights are put on a grid of 1/64 after each step and data are whole numbers, so that every sum is exact in whatever order.

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <sys/wait.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "gradgate/torch.hpp"

namespace {

constexpr int kAccumulate = 4;
constexpr int kFeatures = 12;
constexpr int kClasses = 4;
constexpr int kRows = 8;

std::atomic<uint64_t> all_reduces{0};  // that c10d was asked for, whoever did

// The dispatcher's own record of c10d's operators, to compare gradgate's counts with.
void CountAllReduces() {
  at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
                          if (std::string(call.name()) == "c10d::allreduce_") ++all_reduces;
                          return nullptr;
                        }).scopes({at::RecordScope::FUNCTION}));
}

c10::intrusive_ptr<c10d::ProcessGroup> GlooGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks) {
  auto options = c10d::ProcessGroupGloo::Options::create_default(std::chrono::seconds(60));
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, ranks, std::move(options));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, ranks);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return group;
}

::torch::nn::Sequential Network() {
  ::torch::nn::Sequential network(::torch::nn::Linear(kFeatures, 16), ::torch::nn::ReLU(), ::torch::nn::Linear(16, kClasses));
  network->to(at::kDouble);
  const at::NoGradGuard no_grad;
  int64_t seed = 1;
  for (at::Tensor& p : network->parameters()) {
    p.copy_(((at::arange(p.numel(), p.options()).view(p.sizes()) * 7 + seed++) % 5 - 2) / 4);
  }
  return network;
}

// Micro-batch `number` of a rank: whole numbers, and what is to be learned of them.
std::pair<at::Tensor, at::Tensor> Batch(int rank, int number) {
  const at::Tensor x = (at::arange(kRows * kFeatures, at::kDouble).view({kRows, kFeatures}) * (3 + 2 * rank) + number) % 7 - 3;
  return {x, x.narrow(1, 0, kClasses).clone()};
}

void PutOnGrid(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& p : parameters) p.copy_((p * 64).round().clamp(-256, 256) / 64);
}

struct Outcome {
  std::string bytes;  // of all parameters
  gg_stats stats;
  uint64_t counted = 0;  // all-reduces, by gradgate
  uint64_t seen = 0;     // by the dispatcher
  double loss = 0;
};

Outcome Train(const c10::intrusive_ptr<c10d::ProcessGroup>& group, gg_mode mode, int steps, int extra) {
  ::torch::nn::Sequential network = Network();
  const std::vector<at::Tensor> parameters = network->parameters();
  ::torch::optim::SGD optimizer(parameters, ::torch::optim::SGDOptions(1.0 / 1024));
  const uint64_t before = all_reduces;

  gradgate::torch::Sync sync(parameters, group, {.accumulate = kAccumulate, .mode = mode});
  Outcome outcome;
  for (int number = 0; number < steps * kAccumulate + extra; ++number) {
    const auto [x, y] = Batch(group->getRank(), number);
    {
      auto micro_step = sync.micro_step();
      const at::Tensor loss = (network->forward(x) - y).square().sum() / (kRows * kAccumulate);
      loss.backward();
      outcome.loss = loss.item<double>();
    }
    if (sync.boundary()) {
      optimizer.step();
      optimizer.zero_grad();
      PutOnGrid(parameters);
    }
  }
  while (sync.flush()) {  // what the last window has of micro-steps
    optimizer.step();
    optimizer.zero_grad();
    PutOnGrid(parameters);
  }

  outcome.stats = sync.stats();
  for (const gg_group role : {GG_GROUP_DP, GG_GROUP_OTHER}) {
    const gg_collective_stats all = sync.collective_stats(role, GG_OP_ALL_REDUCE);
    outcome.counted += all.gradient_issued + all.ours_issued + all.other_issued;
  }
  outcome.seen = all_reduces - before;
  sync.close();
  for (const at::Tensor& p : parameters) {
    const at::Tensor whole = p.detach().contiguous();
    outcome.bytes.append(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes());
  }
  return outcome;
}

// Exit status of one rank. Rank 0 prints.
int Rank(const std::string& store_path, int rank, int ranks, int steps, int extra) {
  try {
    CountAllReduces();
    const auto group = GlooGroup(c10::make_intrusive<c10d::FileStore>(store_path, ranks), rank, ranks);
    const Outcome each = Train(group, GG_MODE_EVERY_MICRO_STEP, steps, extra);
    const Outcome once = Train(group, GG_MODE_WINDOW, steps, extra);
    const bool same = each.bytes == once.bytes;
    const bool counts = each.counted == each.seen && once.counted == once.seen;
    if (rank == 0) {
      std::printf("%-18s %6s %12s %16s %12s %14s %10s\n", "", "steps", "micro-steps", "reductions/step", "suppressed",
                  "all-reduces", "last loss");
      for (const auto& [name, of] :
           {std::pair<const char*, const Outcome&>{"every micro-step", each}, {"once a window", once}}) {
        std::printf("%-18s %6lu %12lu %16.1f %12lu %8lu of %lu %10.4f\n", name, of.stats.steps, of.stats.micro_steps,
                    static_cast<double>(of.stats.reductions_issued) / static_cast<double>(of.stats.steps),
                    of.stats.reductions_suppressed, of.counted, of.seen, of.loss);
      }
      std::printf("parameters: %s; counts: %s\n", same ? "the same bytes" : "DIFFERENT",
                  counts ? "as the dispatcher's" : "WRONG");
    }
    return same && counts ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 10;
  const int extra = argc > 3 ? std::atoi(argv[3]) : 0;
  if (ranks < 1 || ranks > 16 || steps < 1 || extra < 0 || extra >= kAccumulate) {
    std::fprintf(stderr,
                 "usage: train [RANKS [STEPS [EXTRA]]]: 1 to 16 ranks, one step or more, 0 to 3 micro-steps after the last\n");
    return 2;
  }
  std::string store_path = "/tmp/gradgate-libtorch.XXXXXX";
  const int made = mkstemp(store_path.data());
  if (made < 0) return 2;
  close(made);
  setenv("GLOO_SOCKET_IFNAME", "lo", 0);
  // Before anything of torch has run: each child is a rank.
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
      const int status = Rank(store_path, rank, ranks, steps, extra);
      std::fflush(nullptr);
      _exit(status);
    }
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed += status != 0;
  unlink(store_path.c_str());
  return failed == 0 ? 0 : 1;
}
