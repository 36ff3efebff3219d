#include "shim/reduce/handshake.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "shim/core/ballot.h"
#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

constexpr int64_t kMs = 1'000'000;

using Facts = std::vector<std::pair<std::string, std::string>>;

std::string Encode(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + "=" + value + "\n";
  return text;
}

std::map<std::string, std::string> Decode(const std::string& text) {
  std::map<std::string, std::string> facts;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const size_t equals = line.find('=');
    if (equals != std::string::npos) facts[line.substr(0, equals)] = line.substr(equals + 1);
    begin = end + 1;
  }
  return facts;
}

// What `theirs` has that differs from `ours`, in the order of `ours`; empty if nothing does.
std::string Differences(const Facts& ours, const std::map<std::string, std::string>& theirs, uint32_t rank) {
  std::string text;
  for (const auto& [name, value] : ours) {
    const auto it = theirs.find(name);
    const std::string their_value = it == theirs.end() ? "nothing" : it->second;
    if (their_value == value) continue;
    text += (text.empty() ? "rank " + std::to_string(rank) + " has " : ", ") + name + "=" + their_value + " where rank 0 has " +
            value;
  }
  return text;
}

std::string Hex(const std::array<uint8_t, 16>& bytes) {
  std::string text;
  for (uint8_t byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  return text;
}

bool FromHex(const std::string& text, std::array<uint8_t, 16>* bytes) {
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
  for (size_t i = 0; i < 16; ++i) (*bytes)[i] = static_cast<uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  return true;
}

std::string Seconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(ns) / 1e9);
  return text;
}

class Session {
 public:
  explicit Session(const HandshakeOptions& options) : o_(options), end_ns_(MonotonicNs() + options.timeout_ns) {}

  Status Run(AgreedIds* ids) {
    std::string earlier;
    if (o_.store->Get(Hello(o_.rank), kMs, &earlier).ok()) {
      return FailedPrecondition("the rendezvous already holds rank " + std::to_string(o_.rank) +
                                " of another run: give each run a directory or store of its own");
    }
    const Status said = o_.store->Set(Hello(o_.rank), Encode(o_.facts), Left());
    if (!said.ok()) return said;
    if (o_.rank != 0) return AwaitVerdict(ids);
    const Status verdict = CompareAll();
    const std::string text = verdict.ok() ? "ok " + Hex(o_.run_id) + " " + Hex(o_.launch_id)
                                          : std::to_string(static_cast<int32_t>(verdict.code())) + " " + verdict.message();
    const Status told = o_.store->Set(o_.prefix + "verdict", text, std::max(Left(), 200 * kMs));
    *ids = {o_.run_id, o_.launch_id};
    return verdict.ok() ? told : verdict;
  }

 private:
  std::string Hello(uint32_t rank) const { return o_.prefix + "hello/" + std::to_string(rank); }
  int64_t Left() const { return std::max<int64_t>(end_ns_ - MonotonicNs(), kMs); }

  Status Missing(const std::vector<uint32_t>& ranks) const {
    return DeadlineExceeded("no gradgate on ranks " + FormatRanks(ranks) + " within " + Seconds(o_.timeout_ns) +
                            ": start the same program on all " + std::to_string(o_.world_size) +
                            " ranks, with the same rendezvous");
  }

  // Rank 0: the first rank that is late uses up the time, those after it are only looked for.
  Status CompareAll() const {
    std::vector<uint32_t> missing;
    std::string differences;
    for (uint32_t rank = 1; rank < o_.world_size; ++rank) {
      std::string hello;
      const Status got = o_.store->Get(Hello(rank), Left(), &hello);
      if (got.code() == Code::kNotFound) {
        missing.push_back(rank);
      } else if (!got.ok()) {
        return got;
      } else {
        const std::string text = Differences(o_.facts, Decode(hello), rank);
        if (!text.empty()) differences += (differences.empty() ? "" : "; ") + text;
      }
    }
    if (!missing.empty()) return Missing(missing);
    if (!differences.empty()) return Aborted("ranks differ: " + differences + "; give all ranks the same version and options");
    return OkStatus();
  }

  Status AwaitVerdict(AgreedIds* ids) const {
    std::string verdict;
    // A tenth of the time is kept for looking who is missing.
    const Status got = o_.store->Get(o_.prefix + "verdict", std::max(Left() - o_.timeout_ns / 10, kMs), &verdict);
    if (got.code() == Code::kNotFound) return WhoIsMissing();
    if (!got.ok()) return got;
    if (verdict.rfind("ok ", 0) == 0) {
      const bool whole = verdict.size() == 3 + 32 + 1 + 32 && verdict[35] == ' ';
      if (whole && FromHex(verdict.substr(3, 32), &ids->run_id) && FromHex(verdict.substr(36), &ids->launch_id))
        return OkStatus();
      return Internal("the handshake's verdict is not readable: \"" + verdict + "\"");
    }
    const size_t space = verdict.find(' ');
    const bool missing = verdict.substr(0, space) == std::to_string(static_cast<int32_t>(Code::kDeadlineExceeded));
    return {missing ? Code::kDeadlineExceeded : Code::kAborted,
            space == std::string::npos ? verdict : verdict.substr(space + 1)};
  }

  Status WhoIsMissing() const {
    std::vector<uint32_t> missing;
    for (uint32_t rank = 0; rank < o_.world_size; ++rank) {
      std::string hello;
      if (rank != o_.rank && !o_.store->Get(Hello(rank), kMs, &hello).ok()) missing.push_back(rank);
    }
    if (!missing.empty()) return Missing(missing);
    return DeadlineExceeded("rank 0 has not judged the handshake within " + Seconds(o_.timeout_ns) + ", though all ranks came");
  }

  const HandshakeOptions& o_;
  const int64_t end_ns_;
};

}  // namespace

Status Handshake(const HandshakeOptions& options, AgreedIds* ids) {
  if (options.world_size == 1) {
    *ids = {options.run_id, options.launch_id};
    return OkStatus();
  }
  return Session(options).Run(ids);
}

}  // namespace gradgate
