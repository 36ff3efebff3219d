// Rows of gradgate/torch.hpp: two ranks, forked, over c10d's Gloo. Prints "NAME ok" for each row, or what was wrong on a rank.
//
//     rows STORE_PREFIX [ROW…]

#include <ATen/ATen.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "gradgate/torch.hpp"

namespace {

using gradgate::torch::Sync;
using gradgate::torch::SyncOptions;
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

std::string failures;

template <typename A, typename B>
void Expect(const char* what, const A& got, const B& want) {
  if (got == want) return;
  failures += std::string(what) + ": ";
  if constexpr (std::is_arithmetic_v<A>) failures += "got " + std::to_string(got) + ", not " + std::to_string(want);
  failures += "\n";
}

// Throws what the call does not: an Error with this code and these words.
void Refused(const char* what, gg_status_t code, const std::string& words, const std::function<void()>& call) {
  try {
    call();
    failures += std::string(what) + ": nothing was thrown\n";
  } catch (const gradgate::Error& error) {
    if (error.code() != code || std::string(error.what()).find(words) == std::string::npos)
      failures += std::string(what) + ": " + error.code_name() + " " + error.what() + "\n";
  }
}

struct Net {
  std::vector<at::Tensor> parameters;  // w of two elements, one that only some use, one that nobody does
  explicit Net(at::ScalarType type = at::kDouble) {
    for (int i = 0; i < 3; ++i) parameters.push_back(at::ones({2}, at::TensorOptions().dtype(type)).set_requires_grad(true));
  }
  void backward(double c, bool some = false) const {
    at::Tensor loss = parameters[0].sum() * c + parameters[0].sum() * (2 * c);  // used twice
    if (some) loss = loss + parameters[1].sum() * c;
    loss.backward();
  }
  double grad(int i) const { return parameters[i].grad().defined() ? parameters[i].grad()[0].item<double>() : -1; }
  void zero() const {
    for (const at::Tensor& p : parameters) p.mutable_grad() = at::Tensor();
  }
  // Runs micro-steps; gradients of w at each boundary.
  std::vector<double> train(Sync& sync, int count, double c, int64_t items = 0) const {
    std::vector<double> seen;
    for (int i = 0; i < count; ++i) {
      {
        auto micro_step = sync.micro_step({.items = items});
        backward(c);
      }
      if (sync.boundary()) {
        seen.push_back(grad(0));
        zero();
      }
    }
    return seen;
  }
};

using Doubles = std::vector<double>;

void OnceAWindow(int rank, const Group& group) {
  const Net net;
  Sync sync(net.parameters, group, {.accumulate = 2, .bucket_bytes = 16});
  for (int i = 0; i < 2; ++i) {
    auto micro_step = sync.micro_step();
    Expect("boundary", micro_step.boundary(), i == 1);
    net.backward(1 + 10 * rank + i, rank == 1 && i == 0);
    micro_step.end();
    Expect("asked", sync.boundary(), i == 1);
  }
  Expect("w", net.grad(0), 39.0);
  Expect("some", net.grad(1), 5.5);
  Expect("never", net.grad(2), -1.0);
  Expect("buckets", sync.bucket_count(), 3U);
  Expect("kind", sync.window().kind, static_cast<gg_window_kind>(GG_WINDOW_FULL));
  const gg_stats stats = sync.stats();
  Expect("steps", stats.steps, 1U);
  Expect("reductions", stats.reductions_issued, 1U);
  Expect("suppressed", stats.reductions_suppressed, 1U);
  Expect("late", stats.reductions_late, 0U);
  Expect("collectives", stats.gradient_collectives, 3U);
  Expect("ours", sync.collective_stats(GG_GROUP_DP, GG_OP_ALL_REDUCE).ours_issued, 1U);
  Expect("ballots", sync.collective_stats(GG_GROUP_OTHER, GG_OP_ALL_REDUCE).ours_issued, 1U);
  sync.close();
  sync.close();
}

void DifferentNumbers(int rank, const Group& group) {
  const Net net;
  Sync sync(net.parameters, group, {.accumulate = 4, .windows = GG_WINDOWS_VARIABLE});
  Doubles seen = net.train(sync, rank == 0 ? 5 : 3, 1.0);
  while (sync.flush()) {
    seen.push_back(net.grad(0));
    net.zero();
  }
  Expect("w", seen, (Doubles{10.5, 1.5}));
  Expect("late", sync.stats().windows_late, rank == 0 ? 1U : 2U);
  Expect("micro-steps", sync.window().max_micro_steps, 1U);
}

void WithoutData(int rank, const Group& group) {
  const Net net;
  Sync sync(net.parameters, group, {.accumulate = 4, .windows = GG_WINDOWS_VARIABLE});
  Doubles seen = net.train(sync, 4 * rank, 1.0);
  while (sync.flush()) seen.push_back(net.grad(0));
  Expect("w", seen, Doubles{6.0});
}

void Divided(int rank, const Group& group) {
  const auto one = [&](gg_divide divide, int64_t items) {
    const Net net;
    Sync sync(net.parameters, group, {.accumulate = 2, .divide = divide});
    const Doubles seen = net.train(sync, 2, 1.0, items);
    return seen.empty() ? -1.0 : seen[0];
  };
  Expect("items", one(GG_DIVIDE_ITEMS, 1 + rank), 2.0);  // 12 over 6 items
  Expect("none", one(GG_DIVIDE_NONE, 0), 12.0);
  Expect("active", one(GG_DIVIDE_ACTIVE, 0), 6.0);
  Refused("items where none are divided by", GG_INVALID_ARGUMENT, "items", [&] { one(GG_DIVIDE_WORLD, 1); });
  Refused("an unknown divide", GG_INVALID_ARGUMENT, "divide is 77", [&] { one(77, 0); });
  const Net net;
  Refused("a type on the wire", GG_INVALID_ARGUMENT, "wire: must be", [&] { Sync(net.parameters, group, {.wire = at::kInt}); });
  Refused("no leaf", GG_INVALID_ARGUMENT, "parameters[0] is undefined, or no leaf",
          [&] { Sync({net.parameters[0] * 2}, group); });
}

void Flushed(int, const Group& group) {
  const Net net;
  Sync sync(net.parameters, group, {.accumulate = 4});
  Expect("w", net.train(sync, 2, 1.0), Doubles{});
  const auto window = sync.flush(4);
  Expect("flushed", window.has_value() && window->micro_steps == 2, true);
  Expect("scaled", net.grad(0), 12.0);
  Expect("nothing left", sync.flush(4).has_value(), false);
}

void EveryMicroStep(int rank, const Group& group) {
  const Net net;
  Sync sync(net.parameters, group, {.accumulate = 2, .mode = GG_MODE_EVERY_MICRO_STEP, .bucket_bytes = 16});
  for (int i = 0; i < 2; ++i) {
    auto micro_step = sync.micro_step();
    net.backward(1, i == rank);
  }
  Expect("asked", sync.boundary(), true);
  Expect("w", net.grad(0), 6.0);
  Expect("some", net.grad(1), 1.0);
  Expect("reductions", sync.stats().reductions_issued, 2U);
}

void FrozenNarrowAndAlone(int, const Group& group) {
  Net net(at::kFloat);
  Sync sync(net.parameters, group, {.wire = at::kBFloat16});
  Expect("bf16", net.train(sync, 1, 1.0 + 1.0 / 256 + 1.0 / 1048576), Doubles{3.015625});
  net.parameters[0].set_requires_grad(false);
  {
    auto micro_step = sync.micro_step();
    (net.parameters[1].sum() * 2).backward();
  }
  Expect("frozen", sync.boundary() && net.grad(0) == -1 && net.grad(1) == 2, true);
  const Net own;
  Sync alone(own.parameters, {}, {.accumulate = 2});
  Expect("alone", own.train(alone, 2, 1.0), Doubles{6.0});
  Expect("of nobody", alone.stats().gradient_collectives, 0U);
}

// Gradients in memory of the trainer's are reduced there; one that is held sees its mean, and keeps it.
void HeldElsewhere(int rank, const Group& group) {
  const Net net;
  Sync sync(net.parameters, group, {.accumulate = 1});
  const at::Tensor flat = at::zeros({4}, at::TensorOptions().dtype(at::kDouble));
  for (int i = 0; i < 2; ++i) net.parameters[i].mutable_grad() = flat.narrow(0, 2 * i, 2);
  for (int window = 0; window < 2; ++window) {
    flat.zero_();
    {
      auto micro_step = sync.micro_step();
      net.backward(1 + 2 * rank, true);
    }
    Expect("asked", sync.boundary(), true);
    Expect("flat", flat[0].item<double>() == 6 && flat[3].item<double>() == 2, true);
  }
  net.zero();
  std::vector<at::Tensor> kept;
  for (int window = 1; window < 5; ++window) {
    const Doubles seen = [&] {
      auto micro_step = sync.micro_step();
      net.backward(window);
      micro_step.end();
      return Doubles{net.grad(0)};
    }();
    Expect("asked", sync.boundary(), true);
    Expect("w", seen, Doubles{3.0 * window});
    kept.push_back(net.parameters[0].grad());
    net.zero();
  }
  for (int window = 1; window < 5; ++window) Expect("kept", kept[window - 1][0].item<double>(), 3.0 * window);
}

void Exceptions(int, const Group& group) {
  const Net net;
  Sync sync(net.parameters, group, {.accumulate = 1});
  try {
    auto micro_step = sync.micro_step();
    throw std::runtime_error("in the forward");
  } catch (const std::runtime_error&) {
  }
  Expect("tried again", net.train(sync, 1, 1.0), Doubles{3.0});
  {
    auto micro_step = sync.micro_step();
    micro_step.skip();
  }
  Expect("all skipped", sync.boundary(), false);
  Refused("items", GG_INVALID_ARGUMENT, "items", [&] { (void)sync.micro_step({.items = 1}); });
  Expect("goes on", net.train(sync, 1, 1.0), Doubles{3.0});
}

void Strict(int rank, const Group& group) {
  const Net net;
  Sync sync(net.parameters, group, {.accumulate = 2, .strict = true});
  (void)net.train(sync, 1, 1.0);
  Refused("unequal", GG_ABORTED, "ranks [1] have 2, ranks [0] have 1", [&] {
    if (rank == 1) (void)net.train(sync, 1, 1.0);  // by boundary(), after the scope
    (void)sync.flush();
  });
}

void NoBackward(int rank, const Group& group) {
  const Net net;
  Sync sync(net.parameters, group, {.accumulate = 1, .deadline = std::chrono::seconds(1)});
  {
    auto micro_step = sync.micro_step();
    if (rank == 0) net.backward(1.0);
  }
  const bool here = rank == 1;
  const auto store = group->getStore();
  Refused("the rank that is told", here ? GG_FAILED_PRECONDITION : GG_DEADLINE_EXCEEDED, here ? "no backward has run" : "rank",
          [&] { (void)sync.boundary(); });
  Refused("from there on", GG_FAILED_PRECONDITION, "", [&] { (void)sync.micro_step(); });
  if (here) store->wait({"told"});
  if (!here) store->set("told", std::vector<uint8_t>{1});
}

void AnotherConfiguration(int rank, const Group& group) {
  const Net net;
  Refused("handshake", GG_ABORTED, "accumulate", [&] {
    Sync sync(net.parameters, group,
              {.accumulate = 2U + static_cast<uint32_t>(rank), .handshake_deadline = std::chrono::seconds(20)});
  });
}

const std::vector<std::pair<std::string, void (*)(int, const Group&)>> kRows{
    {"once_a_window", &OnceAWindow},
    {"different_numbers", &DifferentNumbers},
    {"without_data", &WithoutData},
    {"divided", &Divided},
    {"flushed", &Flushed},
    {"every_micro_step", &EveryMicroStep},
    {"frozen_narrow_and_alone", &FrozenNarrowAndAlone},
    {"held_elsewhere", &HeldElsewhere},
    {"exceptions", &Exceptions},
    {"strict", &Strict},
    {"no_backward", &NoBackward},
    {"another_configuration", &AnotherConfiguration},
};

void Run(int rank, const std::string& prefix, const std::string& name, void (*row)(int, const Group&)) {
  failures.clear();
  try {
    const auto store = c10::make_intrusive<c10d::FileStore>(prefix + name, 2);
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        store, rank, 2, c10d::ProcessGroupGloo::Options::create_default(std::chrono::seconds(20)));
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, 2);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    row(rank, group);
  } catch (const std::exception& error) {
    failures += std::string("threw ") + error.what() + "\n";
  }
  std::printf("%s %d %s\n", name.c_str(), rank, failures.empty() ? "ok" : failures.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  for (int rank = 0; rank < 2; ++rank) {
    if (fork() != 0) continue;
    for (const auto& [name, row] : kRows) {
      if (argc == 2 || name == argv[2]) Run(rank, argv[1], name, row);
    }
    _exit(0);
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed += status != 0;
  return failed;
}
