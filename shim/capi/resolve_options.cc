#include "shim/capi/resolve_options.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "shim/capi/handles.h"

namespace gradgate {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kDefaultBucketBytes = 25ull << 20;

void LogToStderr(void*, uint32_t, const char* reason, const char* message) {
  std::fprintf(stderr, "gradgate: warning [%s]: %s\n", reason, message);
}

const char* FirstSet(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value && *value) return value;
  }
  return nullptr;
}

// A whole number from the environment, or `fallback`.
uint32_t NumberFrom(std::initializer_list<const char*> names, uint32_t fallback) {
  const char* text = FirstSet(names);
  if (!text) return fallback;
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  return *end == '\0' && value <= INT32_MAX ? static_cast<uint32_t>(value) : fallback;
}

Status ReadEnforcement(Enforcement* out) {
  const char* text = std::getenv("GRADGATE");
  const std::string_view value = text ? text : "enforce";
  if (value == "enforce" || value.empty()) {
    *out = Enforcement::kEnforce;
  } else if (value == "audit") {
    *out = Enforcement::kAudit;
  } else if (value == "off") {
    *out = Enforcement::kOff;
  } else {
    return InvalidArgument("GRADGATE=" + std::string(value) + " is not known; use off, audit or enforce");
  }
  return OkStatus();
}

Status OutOfRange(const char* name, uint64_t value, const char* remedy) {
  return InvalidArgument(std::string(name) + " is " + std::to_string(value) + "; " + remedy);
}

std::string FileStem(std::string_view path) {
  path = path.substr(path.rfind('/') + 1);
  return std::string(path.substr(0, path.ends_with(".py") ? path.size() - 3 : path.size()));
}

// The program, or the script or module that a Python runs; empty if there is none.
std::string ProgramName() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; words.size() < 64 && std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) return "";
  const std::string program = FileStem(words[0]);
  if (!program.starts_with("python") && !program.starts_with("pypy")) return program;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-m") return i + 1 < words.size() ? words[i + 1] : "";
    if (word == "-c" || word == "-") return "";
    if (word == "-W" || word == "-X") {
      ++i;
    } else if (!word.starts_with('-')) {
      return FileStem(word);
    }
  }
  return "";
}

// Where nobody gave it an id: "none", or a UUID with --standalone.
bool MadeByTorchrun(std::string_view id) {
  if (id == "none") return true;
  if (id.size() != 36) return false;
  for (size_t i = 0; i < id.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? id[i] != '-' : std::isxdigit(static_cast<unsigned char>(id[i])) == 0) return false;
  }
  return true;
}

// A name that the program gives must be good; one that a launcher left in the environment is made good.
Status ReadJobName(const char* given, std::string* out, bool* by_program) {
  if (given && *given) {
    *out = given;
    if (out->size() <= kMaxJobNameBytes && std::all_of(out->begin(), out->end(), InJobName)) return OkStatus();
    return InvalidArgument("job name \"" + *out +
                           "\" is not usable; give at most 127 bytes of printable ASCII without '/' or '='");
  }
  const char* found = FirstSet({"GRADGATE_JOB"});
  const char* const torchruns = FirstSet({"TORCHELASTIC_RUN_ID"});
  if (!found && torchruns && !MadeByTorchrun(torchruns)) found = torchruns;
  if (!found) found = FirstSet({"SLURM_JOB_NAME"});
  *by_program = !found;
  *out = (found ? found : ProgramName()).substr(0, kMaxJobNameBytes);
  if (out->empty()) *out = "job";
  std::replace_if(
      out->begin(), out->end(), [](char c) { return !InJobName(c); }, '_');
  return OkStatus();
}

Status ReadTensors(const gg_session_options& in, SessionOptions* out) {
  if (in.tensor_count > 0 && in.tensors == nullptr)
    return InvalidArgument("tensors is NULL with tensor_count " + std::to_string(in.tensor_count));
  for (uint32_t i = 0; i < in.tensor_count; ++i) {
    const gg_tensor& tensor = in.tensors[i];
    const std::string name = tensor.name ? tensor.name : "tensor " + std::to_string(i);
    if (tensor.element_count == 0 || tensor.element_count > (uint64_t{1} << 48)) {
      return InvalidArgument("tensor \"" + name + "\" has element_count " + std::to_string(tensor.element_count) +
                             "; it must be between 1 and 2^48");
    }
    if (tensor.dtype != GG_FLOAT32 && tensor.dtype != GG_FLOAT64) {
      return InvalidArgument("tensor \"" + name + "\" has dtype " + std::to_string(tensor.dtype) +
                             "; use GG_FLOAT32 or GG_FLOAT64");
    }
    out->tensor_names.push_back(name);
    out->tensors.push_back(
        {tensor.gradient, tensor.element_count, tensor.dtype == GG_FLOAT32 ? DType::kFloat32 : DType::kFloat64});
  }
  return OkStatus();
}

// Rank, world and store, which the options or a transport give.
template <typename Options>
Status ReadRank(const Options& in, uint32_t rank, uint32_t world_size, MemberOptions* out) {
  out->store = in.store ? in.store->store.get() : nullptr;
  out->rank = rank;
  out->world_size = world_size;
  if (rank >= world_size) return OutOfRange("rank", rank, "it must be less than world_size");
  if (world_size > 1 && !out->store) return OutOfRange("world_size", world_size, "more than one rank needs a store");
  if (in.local_rank >= 0 && static_cast<uint32_t>(in.local_rank) >= world_size) {
    return OutOfRange("local_rank", static_cast<uint64_t>(in.local_rank), "it must be less than world_size");
  }
  // A process that trains alone under a launcher of several has a local rank that its own world does not.
  const uint32_t launched = NumberFrom({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}, rank);
  out->local_rank = in.local_rank >= 0 ? static_cast<uint32_t>(in.local_rank) : launched < world_size ? launched : rank;
  out->attempt = AttemptFromEnvironment();
  const uint32_t ordinal = in.store ? in.store->sessions.fetch_add(1) : 0;
  out->store_prefix = "gradgate/" + std::to_string(out->attempt) + "/" + std::to_string(ordinal) + "/";
  return OkStatus();
}

Status ReadGroup(const gg_session_options& in, SessionOptions* out) {
  if ((in.store && in.store->foreign()) || (in.transport && in.transport->foreign())) {
    return FailedPrecondition("the store or transport belongs to the parent process; a forked child opens its own");
  }
  out->transport = in.transport ? in.transport->transport.get() : nullptr;
  const uint32_t rank = out->transport ? out->transport->rank() : in.rank;
  const uint32_t world_size = out->transport ? out->transport->world_size() : (in.world_size ? in.world_size : 1);
  if (out->transport && in.world_size && in.world_size != world_size) {
    return OutOfRange("world_size", in.world_size,
                      "the transport has another number of ranks; leave it 0 to take the transport's");
  }
  if (rank < world_size && world_size > 1 && !out->transport)
    return OutOfRange("world_size", world_size, "more than one rank needs a transport");
  return ReadRank(in, rank, world_size, out);
}

// What sessions and ledgers share and what needs no group.
template <typename Options>
Status ReadCommon(const Options& in, MemberOptions* out) {
  if (in.windows > GG_WINDOWS_VARIABLE) return OutOfRange("windows", in.windows, "use a GG_WINDOWS_ constant");
  if (in.strict > 1) return OutOfRange("strict", in.strict, "it is 0 or 1");
  if (in.accumulate > (1u << 20)) return OutOfRange("accumulate", in.accumulate, "it must be at most 2^20 micro-steps");
  if (in.deadline_ns < 0 || in.handshake_deadline_ns < 0) return InvalidArgument("a deadline is negative; 0 means the default");
  out->variable_windows = in.windows == GG_WINDOWS_VARIABLE;
  out->strict = in.strict == 1;
  out->deadline_ns = DeadlineOrDefault(in.deadline_ns, 300 * kSecond);
  out->handshake_deadline_ns = DeadlineOrDefault(in.handshake_deadline_ns, 60 * kSecond);
  out->log_user = in.log_user;
  out->log = in.log ? in.log : LogToStderr;
  const Status named = ReadJobName(in.job_name, &out->job_name, &out->named_by_program);
  if (!named.ok()) return named;
  if (!in.daemon_dir) {
    out->daemon_dirs = Link::DefaultDirectories();
  } else if (*in.daemon_dir) {
    out->daemon_dirs = {in.daemon_dir};
  }
  return ReadEnforcement(&out->enforcement);
}

// "name=value" lines.
Status ReadFacts(const char* text, Facts* out) {
  const std::string_view all = text ? text : "";
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    const std::string_view line = all.substr(begin, end - begin);
    const size_t equals = line.find('=');
    const bool bad = equals == 0 || equals == std::string_view::npos || line.find('=', equals + 1) != std::string_view::npos;
    if (bad) return InvalidArgument("facts has the line \"" + std::string(line) + "\"; each is name=value, with one '='");
    out->emplace_back(line.substr(0, equals), line.substr(equals + 1));
    begin = end + 1;
  }
  return OkStatus();
}

// Tells several ledgers of one process apart, on the store and in the daemon.
Status ReadScope(const char* scope, LedgerOptions* out) {
  const std::string text = scope ? scope : "";
  const auto bad = [](char c) { return c == '/' || c == '=' || c <= 0x20 || c > 0x7e; };
  if (text.size() > 32 || std::any_of(text.begin(), text.end(), bad)) {
    return InvalidArgument("scope \"" + text +
                           "\" is not usable; give at most 32 bytes of printable ASCII without ' ', '/' or '='");
  }
  constexpr size_t kMaxJobBytes = 127;
  out->job_name = out->job_name.substr(0, kMaxJobBytes - text.size()) + text;
  if (!text.empty()) out->store_prefix += text + "/";
  return OkStatus();
}

}  // namespace

int64_t DeadlineOrDefault(int64_t deadline_ns, int64_t fallback_ns) {
  constexpr int64_t kLongestNs = 365 * 24 * 3600 * kSecond;
  return deadline_ns ? std::min(deadline_ns, kLongestNs) : fallback_ns;
}

uint32_t AttemptFromEnvironment() {
  return NumberFrom({"GRADGATE_ATTEMPT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}, 0);
}

Status ResolveOptions(const gg_session_options& in, SessionOptions* out) {
  if (in.mode == GG_MODE_WINDOW_REPLICA || in.mode == GG_MODE_AUTO) {
    return OutOfRange("mode", in.mode,
                      "a session reduces over one group, so window_replica and auto are for ledgers alone; use "
                      "GG_MODE_WINDOW or GG_MODE_EVERY_MICRO_STEP");
  }
  if (in.mode > GG_MODE_WINDOW) return OutOfRange("mode", in.mode, "use a GG_MODE_ constant");
  if (in.divide > GG_DIVIDE_NONE) return OutOfRange("divide", in.divide, "use a GG_DIVIDE_ constant");
  Status status = ReadCommon(in, out);
  if (!status.ok()) return status;
  out->accumulate = in.accumulate ? in.accumulate : 1;
  out->mode = in.mode == GG_MODE_EVERY_MICRO_STEP ? SyncMode::kEveryMicroStep : SyncMode::kWindow;
  out->divide = static_cast<Divide>(in.divide);
  out->bucket_bytes = in.bucket_bytes ? in.bucket_bytes : kDefaultBucketBytes;
  status = ReadTensors(in, out);
  return status.ok() ? ReadGroup(in, out) : status;
}

Status ResolveOptions(const gg_ledger_options& in, LedgerOptions* out) {
  constexpr uint32_t kShard = 1u << GG_GROUP_SHARD;
  if (in.mode > GG_MODE_AUTO) return OutOfRange("mode", in.mode, "use a GG_MODE_ constant");
  if (in.roles >= 1u << kGroupRoleCount) return OutOfRange("roles", in.roles, "use bits 1 << GG_GROUP_…");
  Status status = ReadCommon(in, out);
  if (!status.ok()) return status;
  out->accumulate = in.accumulate;
  out->mode = in.mode == GG_MODE_DEFAULT ? SyncMode::kWindow : static_cast<SyncMode>(in.mode);
  out->roles = in.roles;
  if (out->mode == SyncMode::kWindowReplica && in.roles != 0 && (in.roles & kShard) == 0)
    return OutOfRange("mode", in.mode, "window_replica needs a shard group among the roles");
  if (in.store && in.store->foreign())
    return FailedPrecondition("the store belongs to the parent process; a forked child opens its own");
  status = ReadFacts(in.facts, &out->facts);
  if (status.ok()) status = ReadRank(in, in.rank, in.world_size ? in.world_size : 1, out);
  return status.ok() ? ReadScope(in.scope, out) : status;
}

}  // namespace gradgate
