// gradgatectl's command line: any arguments, and the words of a policy.

#include "absl/strings/str_split.h"
#include "client/cli/format.h"
#include "client/cli/options.h"
#include "client/cli/policy_options.h"
#include "daemon/policy/policy_content.h"
#include "tests/fuzz/answers.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

constexpr int kMaxArguments = 8;

enum Mode : unsigned { kArguments, kPolicy, kModeCount };

// Words that mean something; their number is more than any Below() needs.
constexpr const char* kWords[] = {"jobs",       "status",        "windows",      "watch",       "plan",      "doctor",
                                  "nodes",      "policy",        "get",          "set",         "--json",    "--local",
                                  "--last",     "--from",        "--user",       "--target",    "--timeout", "--tls_ca",
                                  "--wait",     "--actor",       "--what-if",    "--ranks",     "--",        "-h",
                                  "--evidence", "--mode=window", "mode=window",  "bucket=1MiB", "wire=bf16", "--accumulate",
                                  "certs",      "completion",    "--parameters", "--compute",   "--dry-run", "--expect"};

// What is said of arguments goes to a terminal.
void Arguments(Input& in) {
  std::vector<std::string> words{"gradgatectl"};
  for (int i = 0; i < kMaxArguments && !in.empty(); ++i) {
    const size_t which = in.Below(2 * std::size(kWords));
    std::string word = which < std::size(kWords) ? kWords[which] : in.Bytes(in.Below(24));
    if (which < std::size(kWords) && in.Below(8) == 7) word += "=" + in.Bytes(in.Below(16));
    word.resize(std::min(word.size(), word.find('\0')));
    words.push_back(word);
  }
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  arguments.push_back(nullptr);
  const auto parsed = cli::ParseOptions(static_cast<int>(words.size()), arguments.data());
  if (const auto* leave = std::get_if<cli::Leave>(&parsed)) {
    FUZZ_CHECK(!leave->text.empty(), "leaves without a word");
    FUZZ_CHECK(leave->exit_code >= 0 && leave->exit_code <= 125, std::to_string(leave->exit_code));
    const std::string said = leave->exit_code == 0 ? leave->text : cli::Printable(leave->text);  // as main() writes it
    if (leave->exit_code != 0) FUZZ_CHECK(said.find('\n') == std::string::npos, "more than a line: " + said);
    CheckShown(said);
    return;
  }
  const auto& options = std::get<cli::Options>(parsed);
  FUZZ_CHECK(options.last >= 0, std::to_string(options.last));
  FUZZ_CHECK(!options.first_index || *options.first_index >= 0, std::to_string(*options.first_index));
  FUZZ_CHECK(options.wait >= absl::ZeroDuration(), absl::FormatDuration(options.wait));
  if (options.command == cli::Command::kPolicySet) {
    FUZZ_CHECK(CheckPolicy(options.policy.policy()).ok(), options.policy.ShortDebugString());
  }
}

// A policy that is taken is one that the daemon takes, and that says the same when it is spelled again.
void Policy(Input& in) {
  std::vector<std::string> words;
  const std::string text = in.Rest();
  for (const absl::string_view word : absl::StrSplit(text, ' ')) words.emplace_back(word);
  const auto request = cli::ParsePolicy(words);
  if (!request.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(request.status()), request.status().ToString());
    return;
  }
  const v1::Policy& policy = request->policy();
  FUZZ_CHECK(Merge(v1::Policy(), policy, request->update_mask()).ok(), text);
  for (const std::string& said : {cli::ModeText(policy), cli::BucketText(policy), cli::WireText(policy),
                                  cli::ReshardText(policy), cli::EnforcementText(policy)}) {
    FUZZ_CHECK(!said.empty(), text);
    CheckShown(said);
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const auto any = [](const std::string& word) {
    return std::string(SeedBuilder()
                           .Byte(std::size(kWords))
                           .Byte(static_cast<unsigned>(std::min<size_t>(word.size(), 23)))
                           .Raw(word.substr(0, 23)));
  };
  for (const char* line : {"jobs --json", "status job", "windows job --last 3", "watch job --from 2", "policy get job",
                           "policy watch 1000/11", "policy set job mode=window bucket=25MiB wire=bf16 --wait=3s",
                           "policy set job mode=given --actor me", "doctor job --evidence", "nodes --local",
                           "plan --ranks 8 --accumulate 4", "plan job --what-if accumulate=8", "certs --help", "--version",
                           "--help", "completion bash", "jobs --user nobody", "jobs --target [::1]:9766 --tls_ca x"}) {
    SeedBuilder seed;
    seed.Byte(kArguments);
    for (const absl::string_view word : absl::StrSplit(line, ' ')) seed.Raw(any(std::string(word)));
    seeds.push_back(seed);
  }
  for (unsigned word = 0; word < std::size(kWords); ++word) seeds.push_back(SeedBuilder().Byte(kArguments).Byte(word).Byte(0));
  for (const char* text :
       {"mode=window bucket=25MiB wire=bf16 reshard=window enforcement=enforce", "mode=given bucket=given", "bucket=1e9",
        "bucket=nan", "bucket=0x10MiB", "enforcement=off", "mode=", "=", "wire=fp16 wire=fp16"}) {
    seeds.push_back(SeedBuilder().Byte(kPolicy).Raw(text));
  }
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradgate::fuzz::Input in(data, size);
  switch (in.Below(gradgate::fuzz::kModeCount)) {
    case gradgate::fuzz::kArguments:
      gradgate::fuzz::Arguments(in);
      break;
    case gradgate::fuzz::kPolicy:
      gradgate::fuzz::Policy(in);
      break;
  }
  return 0;
}
