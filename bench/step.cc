// The step time of the digits network on several processes: by hand (accumulate, then one all-reduce over the same transport)
// and with gradgate, each in memory of its own, in turn.
//
//   bench_step WORLD HIDDEN BATCH ROUNDS [ARM=DAEMON_DIRECTORY…]
//
// Arms: "hand" and "hand_again" (always there: what differs between them is noise), and one with gradgate for each argument. An
// arm named "no_ballot" has its ballots answered in the process: its ranks agree, so each one's own is the result.
// A block is kWindows windows of one arm. Before each block rank 0 prints "block ARM" and waits for a line, so that a daemon
// can be stopped or let go meanwhile. After the last round come the series: ms per window, and of computing per window.

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <numeric>
#include <span>

#include "bench/c_session.h"
#include "bench/interleave.h"
#include "bench/temporary_directory.h"
#include "examples/digits/network.h"
#include "examples/digits/sgd.h"
#include "shim/capi/handles.h"
#include "shim/core/ballot.h"
#include "shim/reduce/clock.h"
#include "shim/reduce/file_store.h"
#include "shim/reduce/gloo/gloo_transport.h"

namespace gradgate::bench {
namespace {

constexpr uint32_t kAccumulate = 4;
constexpr uint32_t kWindows = 6;  // of a block; the first one warms up
constexpr int64_t kDeadlineNs = 60'000'000'000;
using Net = digits::Network<float>;

double CpuMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// Passes on everything but ballots.
class NoBallot final : public Transport {
 public:
  explicit NoBallot(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  uint32_t rank() const override { return inner_->rank(); }
  uint32_t world_size() const override { return inner_->world_size(); }
  Ticket Start(const AllReduceRequest& request) override {
    const bool ballot = request.op == ReduceOp::kMax && request.element_count == Ballot::kWords;
    if (!ballot) sent_ = inner_->Start(request);
    inner_tickets_.push_back(sent_);
    if (ballot && request.done) request.done(request.user, request.tag, true, MonotonicNs(), MonotonicNs());
    return inner_tickets_.size();
  }
  Status Wait(Ticket ticket, int64_t deadline_ns) override {
    const Ticket inner = inner_tickets_[ticket - 1];
    return inner == 0 ? OkStatus() : inner_->Wait(inner, deadline_ns);
  }
  void Abort(const char* reason) override { inner_->Abort(reason); }

 private:
  const std::unique_ptr<Transport> inner_;
  Ticket sent_ = 0;
  std::vector<Ticket> inner_tickets_;
};

// The network, the optimizer and the data, and a window of them; what differs is how gradients become the mean.
class Arm {
 public:
  Arm(std::string arm_name, uint32_t hidden, uint32_t batch)
      : name(std::move(arm_name)), network_(hidden, 1), sgd_(0.001, 0.9) {
    images_.resize(batch);
    for (uint32_t i = 0; i < batch; ++i) {
      for (uint32_t p = 0; p < digits::kPixels; ++p) images_[i].pixels[p] = static_cast<uint8_t>((i * 7 + p * 3) % 17);
      images_[i].label = static_cast<uint8_t>(i % digits::kClasses);
      batch_.push_back(&images_[i]);
    }
  }
  virtual ~Arm() = default;
  virtual void Window() = 0;

  const std::string name;
  Series wall{}, cpu{};

 protected:
  void Forward() { network_.Forward(batch_); }
  void Backward(const std::function<void(uint32_t)>& ready) {
    network_.Backward(1.0f / static_cast<float>(batch_.size() * kAccumulate), gradients_, ready);
  }
  void Step() {
    for (uint32_t t = 0; t < Net::kTensors; ++t) {
      sgd_.Step(t, gradients_[t], network_.Tensor(t));
      std::fill(gradients_[t].begin(), gradients_[t].end(), 0.0f);
    }
  }

  Net network_;
  std::vector<std::span<float>> gradients_;

 private:
  digits::Sgd<float> sgd_;
  std::vector<digits::Image> images_;
  std::vector<const digits::Image*> batch_;
};

class ByHand final : public Arm {
 public:
  ByHand(std::string arm_name, uint32_t hidden, uint32_t batch, Transport* transport)
      : Arm(std::move(arm_name), hidden, batch), transport_(transport) {
    uint64_t total = 0;
    for (uint32_t t = 0; t < Net::kTensors; ++t) total += network_.TensorSize(t);
    flat_.resize(total);
    for (uint32_t t = 0, at = 0; t < Net::kTensors; at += network_.TensorSize(t), ++t)
      gradients_.emplace_back(&flat_[at], network_.TensorSize(t));
  }

  void Window() override {
    for (uint32_t i = 0; i < kAccumulate; ++i) {
      Forward();
      Backward([](uint32_t) {});
    }
    AllReduceRequest request;
    request.data = flat_.data();
    request.element_count = flat_.size();
    request.deadline_ns = MonotonicNs() + kDeadlineNs;
    const Status status = transport_->Wait(transport_->Start(request), request.deadline_ns);
    if (!status.ok()) Check(static_cast<gg_status_t>(status.code()), {0, 0, "the hand-written all-reduce failed"});
    for (float& value : flat_) value /= static_cast<float>(transport_->world_size());
    Step();
  }

 private:
  Transport* const transport_;
  std::vector<float> flat_;
};

class WithGradgate final : public Arm {
 public:
  WithGradgate(std::string arm_name, uint32_t hidden, uint32_t batch, const Group& group, const std::string& daemon_dir)
      : Arm(std::move(arm_name), hidden, batch), daemon_dir_(daemon_dir) {
    std::vector<gg_tensor> tensors;
    for (uint32_t t = 0; t < Net::kTensors; ++t) tensors.push_back(Tensor(network_.TensorSize(t)));
    SessionShape shape{.accumulate = kAccumulate, .daemon_dir = daemon_dir, .job = "step-" + name};
    session_ = std::make_unique<CSession>(group, shape, tensors);
    for (uint32_t t = 0; t < Net::kTensors; ++t) gradients_.emplace_back(session_->gradient(t), network_.TensorSize(t));
  }

  void Window() override {
    for (uint32_t i = 0; i < kAccumulate; ++i) {
      session_->Begin();
      Forward();
      Backward([this](uint32_t tensor) { session_->Ready(tensor); });
      session_->End();
    }
    session_->Step();
    Step();
  }

  bool linked() const { return session_->linked(); }
  const std::string& daemon_dir() const { return daemon_dir_; }

 private:
  const std::string daemon_dir_;
  std::unique_ptr<CSession> session_;
};

void Barrier(Transport& transport) {
  int64_t word = 0;
  AllReduceRequest request;
  request.data = &word;
  request.element_count = 1;
  request.dtype = DType::kInt64;
  request.deadline_ns = MonotonicNs() + kDeadlineNs;
  if (!transport.Wait(transport.Start(request), request.deadline_ns).ok()) std::exit(1);
}

std::unique_ptr<Transport> OwnTransport(const std::string& directory, uint32_t rank, uint32_t world) {
  FileStore store(directory);
  std::unique_ptr<Transport> transport;
  const Status status = GlooTransport::Open({rank, world, &store, "lo", "hand", kDeadlineNs}, &transport);
  if (!status.ok()) {
    std::fprintf(stderr, "bench_step: %s\n", status.message().c_str());
    std::exit(1);
  }
  return transport;
}

// The median window of the block, and the computing of all of it.
void Measure(Arm& arm, bool counted) {
  std::vector<double> walls;
  double cpu_begin = 0;
  for (uint32_t window = 0; window < kWindows; ++window) {
    if (window == 1) cpu_begin = CpuMs();
    const int64_t begin = MonotonicNs();
    arm.Window();
    if (window > 0) walls.push_back(static_cast<double>(MonotonicNs() - begin) / 1e6);
  }
  if (!counted) return;
  arm.cpu.samples.push_back((CpuMs() - cpu_begin) / (kWindows - 1));
  std::nth_element(walls.begin(), walls.begin() + walls.size() / 2, walls.end());
  arm.wall.samples.push_back(walls[walls.size() / 2]);
}

void Ask(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
}

struct Arguments {
  uint32_t world, hidden, batch, rounds;
  std::vector<std::pair<std::string, std::string>> arms;  // name and the daemon's directory
};

void RunRank(const TemporaryDirectory& directory, uint32_t rank, const Arguments& arguments) {
  const auto own = OwnTransport(directory.path("hand"), rank, arguments.world);
  const Group group("file://" + directory.path("store"), rank, arguments.world);
  Group silent("file://" + directory.path("silent"), rank, arguments.world);
  silent.transport->transport = std::make_unique<NoBallot>(std::move(silent.transport->transport));
  std::vector<std::unique_ptr<Arm>> arms;
  for (const char* name : {"hand", "hand_again"})
    arms.push_back(std::make_unique<ByHand>(name, arguments.hidden, arguments.batch, own.get()));
  for (const auto& [name, daemon_dir] : arguments.arms)
    arms.push_back(std::make_unique<WithGradgate>(name, arguments.hidden, arguments.batch, name == "no_ballot" ? silent : group,
                                                  daemon_dir));
  // Everybody's first windows, in which the daemons' welcomes are read.
  for (auto& arm : arms) Measure(*arm, false);
  for (auto& arm : arms) Measure(*arm, false);
  if (rank == 0) {
    for (auto& arm : arms) {
      const auto* session = dynamic_cast<WithGradgate*>(arm.get());
      if (session) std::printf("arm %s %s\n", arm->name.c_str(), session->linked() ? "linked" : "alone");
    }
    Ask("ready");
  }
  for (uint32_t round = 0; round < arguments.rounds; ++round) {
    for (size_t i = 0; i < arms.size(); ++i) {
      Arm& arm = *arms[round % 2 == 0 ? i : arms.size() - 1 - i];
      if (rank == 0) Ask("block " + arm.name);
      Barrier(*own);
      Measure(arm, true);
    }
  }
  Barrier(*own);
  if (rank != 0) return;
  for (auto& arm : arms) {
    arm->wall.name = arm->name;
    arm->cpu.name = arm->name + "_cpu";
    arm->wall.unit = arm->cpu.unit = "ms";
    Print(arm->wall);
    Print(arm->cpu);
  }
}

int Main(const Arguments& arguments) {
  const TemporaryDirectory directory;
  std::vector<pid_t> children;
  for (uint32_t rank = 1; rank < arguments.world; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    RunRank(directory, rank, arguments);
    _exit(0);
  }
  RunRank(directory, 0, arguments);
  bool ok = true;
  for (const pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    ok = ok && status == 0;
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace gradgate::bench

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: bench_step WORLD HIDDEN BATCH ROUNDS [ARM=DAEMON_DIRECTORY...]\n");
    return 2;
  }
  const auto number = [&](int i) { return static_cast<uint32_t>(std::atoi(argv[i])); };
  gradgate::bench::Arguments arguments{number(1), number(2), number(3), number(4), {}};
  for (int i = 5; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = std::min(text.find('='), text.size());
    arguments.arms.emplace_back(text.substr(0, equals), text.substr(std::min(equals + 1, text.size())));
  }
  return gradgate::bench::Main(arguments);
}
