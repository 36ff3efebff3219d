// What people type: the daemon's flags, the addresses it may listen on, its directory, and where a client looks for it.

#include <sys/stat.h>

#include <cerrno>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "client/target.h"
#include "daemon/main/flags.h"
#include "daemon/rpc/listen_address.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

// The library's own may be called once in a process.
namespace absl {
ABSL_NAMESPACE_BEGIN
void SetProgramUsageMessage(absl::string_view) {}
absl::string_view ProgramUsageMessage() { return ""; }
ABSL_NAMESPACE_END
}  // namespace absl

namespace {
int mkdir_error = EACCES;
}

// Makes no directories, whatever the flags say: there already, or not to be made.
extern "C" int __wrap_mkdir(const char*, mode_t) {
  errno = mkdir_error;
  return -1;
}

namespace gradgate::fuzz {
namespace {

constexpr const char* kFlags[] = {"dir",           "metrics_listen",  "grpc_listen",    "tls_cert",     "tls_key",
                                  "tls_client_ca", "grpc_reflection", "max_clients",    "max_watchers", "hello_timeout",
                                  "poll_interval", "window_history",  "max_ended_jobs", "keep_ended",   "metrics_linger"};

enum Mode : unsigned { kFlagMode, kAddressMode, kTargetMode, kModeCount };

absl::CommandLineFlag& Flag(size_t index) {
  absl::CommandLineFlag* flag = absl::FindCommandLineFlag(kFlags[index]);
  FUZZ_CHECK(flag != nullptr, kFlags[index]);
  return *flag;
}

void CheckOptions(const DaemonOptions& options) {
  FUZZ_CHECK(!options.directory.empty(), "no directory");
  FUZZ_CHECK(options.listener.max_clients >= 1, "nobody may connect");
  FUZZ_CHECK(options.registry.window_history >= 1, "no window is kept");
  FUZZ_CHECK(options.listener.poll_interval >= absl::Milliseconds(1) && options.listener.poll_interval <= absl::Seconds(10),
             absl::FormatDuration(options.listener.poll_interval));
  FUZZ_CHECK(options.listener.hello_timeout > absl::ZeroDuration() && options.listener.hello_timeout <= absl::Hours(1),
             absl::FormatDuration(options.listener.hello_timeout));
  FUZZ_CHECK(options.registry.keep_ended >= absl::ZeroDuration(), absl::FormatDuration(options.registry.keep_ended));
}

void Flags(Input& in) {
  mkdir_error = in.Coin() ? EEXIST : EACCES;
  bool changed[std::size(kFlags)] = {};
  for (size_t i = in.Below(4); i > 0; --i) {
    const size_t index = in.Below(std::size(kFlags));
    std::string error;
    changed[index] = true;
    if (!Flag(index).ParseFrom(in.Text(), &error)) FUZZ_CHECK(!Flag(index).CurrentValue().empty() || index < 6, error);
  }
  std::string program = "gradgated", positional = in.Text();
  positional.resize(std::min(positional.size(), positional.find('\0')));
  char* arguments[] = {program.data(), positional.data(), nullptr};
  const bool has_positional = !positional.empty() && positional.front() != '-';
  const auto options = ParseFlags(has_positional ? 2 : 1, arguments);
  if (options.ok()) {
    FUZZ_CHECK(!has_positional, positional);
    CheckOptions(*options);
  } else {
    FUZZ_CHECK(!options.status().message().empty(), "an error without a message");
  }
  for (size_t i = 0; i < std::size(kFlags); ++i) {
    std::string error;
    if (changed[i]) FUZZ_CHECK(Flag(i).ParseFrom(Flag(i).DefaultValue(), &error), error);
  }
}

void Address(Input& in) {
  const std::string names[] = {"", ScratchDirectory(), ScratchDirectory() + "/none"};
  const TlsFiles tls{names[in.Below(3)], names[in.Below(3)], names[in.Below(3)]};
  const std::string text = in.Rest();
  const auto address = ParseHostPort(text);
  if (!address.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(address.status()), address.status().ToString());
    return;
  }
  FUZZ_CHECK(!address->host.empty() && address->port >= 0 && address->port <= 65535, text);
  const auto credentials = MakeTcpCredentials(*address, tls);
  FUZZ_CHECK(!credentials.ok() || IsLoopback(address->host), "plain text beyond loopback: " + text);
}

void Target(Input& in) {
  const std::string text = in.Rest();
  const auto target = client::ParseTarget(text);
  if (!target.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(target.status()), target.status().ToString());
    return;
  }
  FUZZ_CHECK(!target->address.empty(), text);
  if (target->kind == client::Target::Kind::kUnix) FUZZ_CHECK(target->address.size() <= 107, text);
  (void)target->GrpcName();
  (void)client::TargetInDirectory(text);
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const char* values[] = {"/run/x", "127.0.0.1:0", "[::1]:9768", "cert", "key", "ca", "false", "7",
                          "9",      "1.5s",        "20ms",       "12",   "0",   "2h", "inf"};
  for (unsigned i = 0; i < std::size(kFlags); ++i) {
    seeds.push_back(SeedBuilder().Byte(kFlagMode).Byte(1).Byte(1).Byte(i).Text(values[i]));
  }
  seeds.push_back(SeedBuilder().Byte(kFlagMode).Byte(1).Byte(2).Byte(7).Text("0").Byte(10).Text("11s").Text("word"));
  for (const char* text :
       {"127.0.0.1:1", "localhost:65535", "[::1]:0", "[fe80::1%eth0]:9", "0.0.0.0:80", ":1", "a:b", "[]:1"}) {
    seeds.push_back(SeedBuilder().Byte(kAddressMode).Byte(0).Byte(0).Byte(0).Raw(text));
  }
  seeds.push_back(SeedBuilder().Byte(kAddressMode).Byte(1).Byte(2).Byte(1).Raw("10.0.0.1:9"));
  seeds.push_back(SeedBuilder().Byte(kAddressMode).Byte(1).Byte(0).Byte(1).Raw("10.0.0.1:9"));
  for (const char* text : {"unix:/run/g/api.sock", "unix:///run/api.sock", "/run/api.sock", "127.0.0.1:9766", "[::1]:9766",
                           "node-7:1", "dns:///x:1", "[::1", "host:0"}) {
    seeds.push_back(SeedBuilder().Byte(kTargetMode).Raw(text));
  }
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradgate::fuzz::Input in(data, size);
  switch (in.Below(gradgate::fuzz::kModeCount)) {
    case gradgate::fuzz::kFlagMode:
      gradgate::fuzz::Flags(in);
      break;
    case gradgate::fuzz::kAddressMode:
      gradgate::fuzz::Address(in);
      break;
    case gradgate::fuzz::kTargetMode:
      gradgate::fuzz::Target(in);
      break;
  }
  return 0;
}
