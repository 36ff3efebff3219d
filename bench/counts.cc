// Work to be counted by callgrind, with nothing in it that depends on time or on other processes, so that the count is the
// same each time. run.py runs it for two numbers of turns and takes the difference, which leaves the start-up out.
//
//   bench_counts WHAT TURNS [HIDDEN BATCH]
//
//   event      one event with the clock
//   micro      one suppressed micro-step: begin and end, through the C ABI, in a world of 2
//   window1    a window of four micro-steps and its step, six tensors, in a world of 1
//   window     the same in a world of 2: ballot, bucket, counting and all but the sending, over a transport that is done at
//   once step       what a trainer computes in such a window: the digits network, four micro-batches and SGD
//
// Gradients are few in `window`, so that what is counted is gradgate's own and not the division of numbers.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "bench/c_session.h"
#include "bench/interleave.h"
#include "examples/digits/network.h"
#include "examples/digits/sgd.h"
#include "shim/capi/handles.h"
#include "shim/stats/recorder.h"

namespace gradgate::bench {
namespace {

constexpr uint32_t kAccumulate = 4;
using Net = digits::Network<float>;

// A peer that always brings the same: the sum of a gradient is then not its own, which nobody here minds.
class InstantTransport final : public Transport {
 public:
  uint32_t rank() const override { return 0; }
  uint32_t world_size() const override { return 2; }
  Ticket Start(const AllReduceRequest& request) override {
    if (request.done) request.done(request.user, request.tag, true, 1, 2);
    return ++last_;
  }
  Status Wait(Ticket /*ticket*/, int64_t /*deadline_ns*/) override { return OkStatus(); }
  void Abort(const char* /*reason*/) override {}

 private:
  Ticket last_ = 0;
};

// Rank 1 of the handshake says what rank 0 says.
class EchoStore final : public Store {
 public:
  Status Set(const std::string& key, std::string_view value, int64_t /*timeout_ns*/) override {
    values_[key] = std::string(value);
    return OkStatus();
  }
  Status Get(const std::string& key, int64_t /*timeout_ns*/, std::string* value) override {
    auto found = values_.find(key);
    if (found == values_.end() && !key.empty()) found = values_.find(key.substr(0, key.size() - 1) + "0");
    if (found == values_.end()) return {Code::kNotFound, key};
    *value = found->second;
    return OkStatus();
  }

 private:
  std::map<std::string, std::string> values_;
};

class Trainer {
 public:
  explicit Trainer(uint32_t world) : group_("", 0, 1) {
    if (world > 1) {
      group_.store = new gg_store;
      group_.store->store = std::make_unique<EchoStore>();
      group_.transport = new gg_transport;
      group_.transport->transport = std::make_unique<InstantTransport>();
    }
    session_ = std::make_unique<CSession>(group_, SessionShape{.accumulate = kAccumulate},
                                          std::vector<gg_tensor>(Net::kTensors, Tensor(1)));
  }
  void SuppressedMicroStep() {
    gg_error error;
    Keep(session_->MicroStep(GG_LAST_NO, &error));
  }
  void Window() {
    for (uint32_t i = 0; i < kAccumulate; ++i) {
      session_->Begin();
      session_->ReadyAll();
      session_->End();
    }
    session_->Step();
  }

 private:
  Group group_;
  std::unique_ptr<CSession> session_;
};

void Steps(uint32_t turns, uint32_t hidden, uint32_t batch_size) {
  Net network(hidden, 1);
  digits::Sgd<float> sgd(0.001, 0.9);
  std::vector<std::vector<float>> memory;
  std::vector<std::span<float>> gradients;
  for (uint32_t t = 0; t < Net::kTensors; ++t) memory.emplace_back(network.TensorSize(t));
  for (auto& tensor : memory) gradients.emplace_back(tensor);
  std::vector<digits::Image> images(batch_size);
  std::vector<const digits::Image*> batch;
  for (digits::Image& image : images) {
    std::memset(image.pixels, 8, sizeof(image.pixels));
    image.label = 3;
    batch.push_back(&image);
  }
  for (uint32_t turn = 0; turn < turns; ++turn) {
    for (uint32_t i = 0; i < kAccumulate; ++i) {
      network.Forward(batch);
      network.Backward(0.01f, gradients, [](uint32_t) {});
    }
    for (uint32_t t = 0; t < Net::kTensors; ++t) {
      sgd.Step(t, gradients[t], network.Tensor(t));
      std::fill(gradients[t].begin(), gradients[t].end(), 0.0f);
    }
  }
}

void Events(uint32_t turns) {
  std::unique_ptr<Recorder> recorder;
  (void)Recorder::Create({.job_name = "bench"}, &recorder);
  for (uint32_t i = 0; i < turns; ++i) {
    recorder->Record(EventKind::kMicroStepBegin, GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kOther, 1, 0,
                     Recorder::NowNs());
  }
}

int Main(const std::string& what, uint32_t turns, uint32_t hidden, uint32_t batch) {
  if (what == "event") {
    Events(turns);
  } else if (what == "step") {
    Steps(turns, hidden, batch);
  } else if (what == "micro" || what == "window" || what == "window1") {
    Trainer trainer(what == "window1" ? 1 : 2);
    const bool micro = what == "micro";
    for (uint32_t i = 0; i < turns; ++i) micro ? trainer.SuppressedMicroStep() : trainer.Window();
  } else {
    std::fprintf(stderr, "bench_counts: nothing is called \"%s\"\n", what.c_str());
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace gradgate::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: bench_counts WHAT TURNS [HIDDEN BATCH]\n");
    return 2;
  }
  const auto number = [&](int i, uint32_t otherwise) {
    return argc > i ? static_cast<uint32_t>(std::atoi(argv[i])) : otherwise;
  };
  return gradgate::bench::Main(argv[1], number(2, 1), number(3, 128), number(4, 8));
}
