// The C interface of the shim, with option structs, environments, store URLs and call sequences of any kind, by a job of one
// rank. Whatever a program gives, the page that the shim writes is one that the daemon reads.

#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "shim/capi/handles.h"
#include "shim/include/gradgate/gradgate.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/page_check.h"
#include "tests/fuzz/target.h"

// No name is asked for on a network.
extern "C" int __wrap_getaddrinfo(const char*, const char*, const addrinfo*, addrinfo**) { return EAI_NONAME; }

namespace gradgate::fuzz {
namespace {

constexpr int kMaxCalls = 40;
constexpr uint64_t kMaxElements = 64;
constexpr size_t kMaxTensors = 6;

constexpr const char* kVariables[] = {"GRADGATE",
                                      "GRADGATE_JOB",
                                      "GRADGATE_DIR",
                                      "GRADGATE_ATTEMPT",
                                      "TORCHELASTIC_RUN_ID",
                                      "TORCHELASTIC_RESTART_COUNT",
                                      "SLURM_JOB_NAME",
                                      "SLURM_RESTART_COUNT",
                                      "LOCAL_RANK",
                                      "SLURM_LOCALID",
                                      "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "GRADGATE_DAEMON_UID"};

enum Call : unsigned { kBegin, kReady, kEnd, kAbandon, kStep, kFlush, kStats, kCollectives, kGradient, kClose, kCallCount };

// The environment is the input's alone; setenv() would keep every value for ever.
class Environment {
 public:
  explicit Environment(Input& in) : former_(environ) {
    const size_t count = in.Below(4);
    for (size_t i = 0; i < count; ++i) {
      lines_[i] = std::string(kVariables[in.Below(std::size(kVariables))]) + "=" + in.Text();
      pointers_[i] = lines_[i].data();
    }
    pointers_[count] = nullptr;
    environ = pointers_.data();
  }
  ~Environment() { environ = former_; }

 private:
  char** const former_;
  std::array<std::string, 4> lines_;
  std::array<char*, 5> pointers_{};
};

void CheckError(gg_status_t status, const gg_error& error) {
  if (status == GG_OK) return;
  FUZZ_CHECK(error.code == status, gg_status_name(status));
  FUZZ_CHECK(std::memchr(error.message, '\0', sizeof(error.message)) != nullptr, "a message without an end");
  FUZZ_CHECK(error.message[0] != '\0', gg_status_name(status));
  FUZZ_CHECK(status != GG_INTERNAL, error.message);
}

void Log(void*, gg_severity, const char* reason, const char* message) {
  FUZZ_CHECK(*reason != '\0' && *message != '\0', "an empty warning");
}

// Memory for a struct of any claimed size.
template <typename T>
struct Padded {
  T value{};
  char tail[256] = {};

  // The struct's fields from the input, then a tail that is mostly zero.
  void Read(Input& in) {
    const std::string bytes = in.Bytes(sizeof(T));
    std::memcpy(static_cast<void*>(&value), bytes.data(), bytes.size());
    if (in.Below(8) == 7) tail[in.Below(16)] = 1;
    SetSize(in);
  }
  void SetSize(Input& in) {
    constexpr uint32_t kSizes[] = {sizeof(T), 0, 3, 4, 8, sizeof(T) - 8, sizeof(T) + 8, sizeof(T) + 200};
    value.struct_size = kSizes[in.Below(std::size(kSizes))];
  }
};

class Trainer {
 public:
  explicit Trainer(Input& in) : in_(in) {}
  ~Trainer() { gg_session_destroy(session_); }

  void Run() {
    if (!Create()) return;
    for (int i = 0; i < kMaxCalls && !in_.empty(); ++i) Take(static_cast<Call>(in_.Below(kCallCount)));
    CheckPage(session_->session->page());
  }

 private:
  bool Create() {
    Padded<gg_session_options> options;
    options.Read(in_);
    const std::string job_name = in_.Text();
    options.value.tensor_count = static_cast<uint32_t>(in_.Below(kMaxTensors + 1));
    for (uint32_t i = 0; i < options.value.tensor_count; ++i) ReadTensor(i);
    options.value.tensors = in_.Below(16) == 15 ? nullptr : tensors_.data();
    options.value.store = nullptr;
    options.value.transport = nullptr;
    options.value.job_name = in_.Coin() ? job_name.c_str() : nullptr;
    options.value.daemon_dir = in_.Coin() ? "" : nowhere_.c_str();
    options.value.log = Log;
    // A short struct leaves the rest to defaults, and the default directory may have a daemon.
    if (options.value.struct_size >= 4 && options.value.struct_size < sizeof(gg_session_options)) {
      options.value.struct_size = offsetof(gg_session_options, bucket_bytes);
    }
    gg_error error{};
    const gg_status_t status = gg_session_create(&options.value, &session_, &error);
    CheckError(status, error);
    FUZZ_CHECK((status == GG_OK) == (session_ != nullptr), gg_status_name(status));
    if (status != GG_OK) FUZZ_CHECK(status == GG_INVALID_ARGUMENT || status == GG_UNIMPLEMENTED, error.message);
    return status == GG_OK;
  }

  // Never more than a few elements, unless it is more than the interface takes.
  void ReadTensor(uint32_t index) {
    gg_tensor& tensor = tensors_[index];
    names_[index] = in_.Bytes(in_.Below(8));
    tensor.name = in_.Coin() ? names_[index].c_str() : nullptr;
    tensor.element_count = in_.Below(kMaxElements + 2);
    if (tensor.element_count == kMaxElements + 1) tensor.element_count = UINT64_MAX;
    tensor.dtype = static_cast<gg_dtype>(in_.Below(4));
    tensor.gradient = in_.Coin() ? memory_[index].data() : nullptr;
  }

  void Take(Call call) {
    gg_error error{};
    uint32_t answer = 0;
    switch (call) {
      case kBegin: {
        Padded<gg_micro_step> micro_step;
        micro_step.Read(in_);
        const bool given = in_.Coin();
        return CheckError(gg_micro_step_begin(session_, given ? &micro_step.value : nullptr, &answer, &error), error);
      }
      case kReady:
        return CheckError(gg_gradient_ready(session_, in_.Byte() % (kMaxTensors + 1), &error), error);
      case kEnd:
        return CheckError(gg_micro_step_end(session_, &error), error);
      case kAbandon:
        return CheckError(gg_micro_step_abandon(session_, &error), error);
      case kStep: {
        Padded<gg_window> window;
        window.SetSize(in_);
        return CheckError(gg_step_begin(session_, in_.Coin() ? &window.value : nullptr, &error), error);
      }
      case kFlush: {
        Padded<gg_window> window;
        window.SetSize(in_);
        const auto divisor = in_.Number<uint32_t>();
        return CheckError(gg_flush(session_, divisor, &answer, in_.Coin() ? &window.value : nullptr, &error), error);
      }
      case kStats: {
        Padded<gg_stats> stats;
        stats.SetSize(in_);
        return CheckError(gg_stats_get(session_, &stats.value, &error), error);
      }
      case kCollectives: {
        Padded<gg_collective_stats> stats;
        stats.SetSize(in_);
        const gg_group group = in_.Byte() % 6;
        return CheckError(gg_collective_stats_get(session_, group, in_.Byte() % 16, &stats.value, &error), error);
      }
      case kGradient: {
        void* gradient = nullptr;
        const gg_status_t status = gg_session_gradient(session_, in_.Byte() % (kMaxTensors + 1), &gradient, &error);
        FUZZ_CHECK((status == GG_OK) == (gradient != nullptr), "no memory for a gradient");
        return CheckError(status, error);
      }
      case kClose:
        return CheckError(gg_session_close(session_, &error), error);
      case kCallCount:
        return;
    }
  }

  Input& in_;
  gg_session* session_ = nullptr;
  std::array<gg_tensor, kMaxTensors> tensors_{};
  std::array<std::string, kMaxTensors> names_;
  std::array<std::array<double, kMaxElements>, kMaxTensors> memory_{};
  const std::string nowhere_ = ScratchDirectory() + "/nowhere";
};

void OpenStore(Input& in) {
  Padded<gg_store_options> options;
  options.Read(in);
  const std::string url = in.Rest();
  options.value.url = url.c_str();
  options.value.deadline_ns = std::min<int64_t>(options.value.deadline_ns, 1);
  if (options.value.deadline_ns == 0) options.value.deadline_ns = 1;
  if (options.value.struct_size >= 4 && options.value.struct_size < sizeof(gg_store_options)) {
    options.value.struct_size = sizeof(gg_store_options);
  }
  gg_store* store = nullptr;
  gg_error error{};
  const gg_status_t status = gg_store_open(&options.value, &store, &error);
  CheckError(status, error);
  FUZZ_CHECK((status == GG_OK) == (store != nullptr), url);
  if (status == GG_OK) FUZZ_CHECK(url.compare(0, 8, "file:///") == 0, url);
  gg_store_destroy(store);
}

std::string Call1(Call call, const std::string& rest = "") { return SeedBuilder().Byte(call).Raw(rest); }

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  gg_session_options options = GG_SESSION_OPTIONS_INIT;
  options.accumulate = 2;
  gg_micro_step micro_step = GG_MICRO_STEP_INIT;
  const std::string begin = Call1(kBegin, SeedBuilder().Raw(BytesOf(micro_step)).Byte(0).Byte(0).Byte(1));
  for (const auto& [mode, divide, variable] : {std::array<uint32_t, 3>{0, 0, 0}, {1, 2, 1}, {2, 1, 0}, {2, 3, 1}}) {
    options.mode = mode;
    options.divide = divide;
    options.windows = variable;
    SeedBuilder seed;
    seed.Byte(1).Byte(2).Byte(0).Text(mode == 1 ? "audit" : "enforce").Byte(1).Text("job");
    seed.Raw(BytesOf(options)).Byte(0).Byte(0).Text("name").Byte(2);
    for (unsigned tensor = 0; tensor < 2; ++tensor) seed.Byte(1).Raw("w").Byte(1).Byte(8).Byte(1 + tensor).Byte(tensor);
    seed.Byte(0).Byte(1).Byte(0);
    for (int i = 0; i < 3; ++i) {
      seed.Raw(begin).Raw(Call1(kReady, std::string(1, '\0'))).Raw(Call1(kReady, std::string(1, '\1'))).Byte(kEnd);
    }
    seed.Byte(kStep).Byte(0).Byte(1).Raw(begin).Byte(kAbandon).Raw(begin).Byte(kEnd);
    seed.Byte(kFlush).Byte(0).Number(uint32_t{2}).Byte(1).Byte(kStats).Byte(0).Byte(kClose);
    seeds.push_back(seed);
  }
  for (unsigned variable = 0; variable < std::size(kVariables); ++variable) {
    SeedBuilder seed;
    seed.Byte(1).Byte(1).Byte(variable).Text(variable == 0 ? "off" : "3").Raw(BytesOf(options)).Byte(0).Byte(0).Text("");
    seeds.push_back(seed.Byte(0).Byte(0).Byte(0).Byte(1).Byte(kStep).Byte(0).Byte(1));
  }
  gg_store_options store = GG_STORE_OPTIONS_INIT;
  for (const char* url :
       {"file:///tmp/x", "file:///", "tcp://host:1", "tcp://[::1]:65535", "tcp://:1", "tcp://h:99999", "redis://"}) {
    seeds.push_back(SeedBuilder().Byte(0).Raw(BytesOf(store)).Byte(0).Byte(0).Raw(url));
  }
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradgate::fuzz::Input in(data, size);
  if (!in.Coin()) {
    gradgate::fuzz::OpenStore(in);
    return 0;
  }
  const int lowest = gradgate::fuzz::LowestFreeDescriptor();
  {
    const gradgate::fuzz::Environment environment(in);
    gradgate::fuzz::Trainer(in).Run();
  }
  gradgate::fuzz::CheckNoDescriptorIsLeft(lowest);
  return 0;
}
