// The reducer against the Gloo under it: two processes on this machine reduce the same buckets by gradgate and by Gloo alone.
//
//   bench_reducer [ROUNDS] [MIB…]
//
// Series, ms per window of one micro-step: raw (Gloo's all-reduce on the caller's thread), raw_mean (a small one before it, and
// the division by the world after it), views_sum, views_mean (gradients are views of buckets), raw_copies (copied into one
// buffer, reduced, divided back; a small one before), copies (gradients in memory of the trainer's).

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "bench/c_session.h"
#include "bench/interleave.h"
#include "bench/temporary_directory.h"
#include "shim/core/ballot.h"
#include "shim/core/bucket_plan.h"
#include "shim/reduce/clock.h"

namespace gradgate::bench {
namespace {

constexpr uint32_t kWorld = 2;
constexpr uint32_t kTensors = 16;
constexpr uint64_t kBucketBytes = 25u << 20;

double CpuMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

class RawGloo {
 public:
  RawGloo(const std::string& directory, uint32_t rank) {
    std::filesystem::create_directories(directory);
    gloo::transport::tcp::attr where;
    where.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(where);
    auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank), static_cast<int>(kWorld));
    gloo::rendezvous::FileStore store(directory);
    context->connectFullMesh(store, device);
    context_ = context;
  }
  void Barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  void AllReduce(float* data, uint64_t count) { Run(data, count, &gloo::sum<float>); }
  // As large as gradgate's.
  void Ballot() { Run(ballot_, std::size(ballot_), &gloo::max<int64_t>); }

 private:
  template <typename T>
  void Run(T* data, uint64_t count, void (*reduce)(void*, const void*, const void*, size_t)) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data, count);
    options.setReduceFunction(reduce);
    gloo::allreduce(options);
  }

  int64_t ballot_[Ballot::kWords] = {};
  std::shared_ptr<gloo::Context> context_;
};

// One size: the same tensors in buckets of gradgate's and in a buffer of one's own, cut at the same places.
class Size {
 public:
  Size(RawGloo& gloo, const Group& group, uint64_t bytes)
      : gloo_(gloo),
        count_(bytes / sizeof(float) / kTensors),
        flat_(count_ * kTensors, 1.0f),
        own_(kTensors, std::vector<float>(count_, 1.0f)),
        sum_(group, {.accumulate = 1, .divide = GG_DIVIDE_NONE}, Views()),
        mean_(group, {.accumulate = 1}, Views()),
        copies_(group, {.accumulate = 1}, Copies()) {
    const std::vector<TensorShape> shapes(kTensors, {count_, sizeof(float), 1});
    for (const auto& bucket : PlanBuckets(shapes, kBucketBytes).buckets) buckets_.push_back(bucket.element_count);
  }

  void Raw(bool mean) {
    float* at = flat_.data();
    for (const uint64_t count : buckets_) {
      gloo_.AllReduce(at, count);
      at += count;
    }
    if (mean) Divide(flat_.data(), flat_.data(), flat_.size());
  }
  void RawCopies() {
    for (uint32_t i = 0; i < kTensors; ++i) std::memcpy(&flat_[i * count_], own_[i].data(), count_ * sizeof(float));
    Raw(false);
    for (uint32_t i = 0; i < kTensors; ++i) Divide(own_[i].data(), &flat_[i * count_], count_);
  }
  static void Window(const CSession& session) {
    session.Begin();
    session.ReadyAll();
    session.End();
    session.Step();
  }

  std::vector<Series> All(uint64_t mib) {
    std::string suffix("_");
    suffix.append(std::to_string(mib)).append("mib");
    std::vector<Series> all;
    // Wall time, and beside it the time that this process computed, which others on the machine change less.
    const auto add = [&](const char* name, std::function<void()> body) {
      const auto cpu_ms = std::make_shared<double>(0);
      all.push_back({std::string(name).append(suffix), "ms", [this, cpu_ms, body] {
                       gloo_.Barrier();
                       const double cpu_before = CpuMs();
                       const int64_t begin = MonotonicNs();
                       body();
                       const double wall_ms = static_cast<double>(MonotonicNs() - begin) / 1e6;
                       *cpu_ms = CpuMs() - cpu_before;
                       return wall_ms;
                     }});
      all.push_back({std::string(name).append(suffix).append("_cpu"), "ms", [cpu_ms] { return *cpu_ms; }});
    };
    add("raw", [this] { Raw(false); });
    add("views_sum", [this] { Window(sum_); });
    add("raw_mean", [this] {
      gloo_.Ballot();
      Raw(true);
    });
    add("views_mean", [this] { Window(mean_); });
    add("raw_copies", [this] {
      gloo_.Ballot();
      RawCopies();
    });
    add("copies", [this] { Window(copies_); });
    return all;
  }

 private:
  static void Divide(float* out, const float* in, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) out[i] = in[i] / kWorld;
  }
  std::vector<gg_tensor> Views() const { return std::vector<gg_tensor>(kTensors, Tensor(count_)); }
  std::vector<gg_tensor> Copies() {
    std::vector<gg_tensor> tensors;
    for (auto& gradient : own_) tensors.push_back(Tensor(count_, gradient.data()));
    return tensors;
  }

  RawGloo& gloo_;
  const uint64_t count_;
  std::vector<float> flat_;
  std::vector<std::vector<float>> own_;
  CSession sum_, mean_, copies_;
  std::vector<uint64_t> buckets_;
};

void RunRank(const TemporaryDirectory& directory, uint32_t rank, uint32_t rounds, const std::vector<uint64_t>& sizes) {
  RawGloo gloo(directory.path("gloo"), rank);
  const Group group("file://" + directory.path("store"), rank, kWorld);
  for (const uint64_t mib : sizes) {
    Size size(gloo, group, mib << 20);
    std::vector<Series> series = size.All(mib);
    RunInterleaved(series, rounds);
    for (const Series& each : series) {
      if (rank == 0) Print(each);
    }
    gloo.Barrier();
  }
}

int Main(uint32_t rounds, const std::vector<uint64_t>& sizes) {
  const TemporaryDirectory directory;
  const pid_t child = fork();
  if (child == 0) {
    RunRank(directory, 1, rounds, sizes);
    _exit(0);
  }
  RunRank(directory, 0, rounds, sizes);
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gradgate::bench

int main(int argc, char** argv) {
  std::vector<uint64_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {1, 8, 64};
  return gradgate::bench::Main(argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 10, sizes);
}
