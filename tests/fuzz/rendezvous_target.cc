// Ranks that meet at a hostile rendezvous: the handshake, the naming of missing ranks and a reduced ballot, over values, sizes
// and status codes of the store's choice. No wait is long: the store answers at once, and budgets are a nanosecond.

#include <array>

#include "shim/capi/callback_store.h"
#include "shim/core/ballot.h"
#include "shim/reduce/arrival_board.h"
#include "shim/reduce/handshake.h"
#include "shim/reduce/store_limits.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

enum Mode : unsigned { kHandshake, kBoard, kBallot, kModeCount };

// What a get finds: a status code, a claim of bytes beyond those given, and a value.
constexpr gg_status_t kCodes[] = {GG_OK, GG_OK, GG_OK, GG_NOT_FOUND, GG_UNAVAILABLE, GG_INTERNAL, 99};

gg_status_t Set(void* user, const char* key, const void*, size_t value_bytes, int64_t deadline_ns) {
  FUZZ_CHECK(IsStoreKey(key), key);
  FUZZ_CHECK(value_bytes <= kStoreMaxValueBytes && deadline_ns > 0, key);
  auto& in = *static_cast<Input*>(user);
  if (in.Below(16) != 15) return GG_OK;
  const gg_status_t code = kCodes[in.Below(std::size(kCodes))];
  return code == GG_NOT_FOUND ? GG_UNAVAILABLE : code;  // only a get may say that
}

gg_status_t Get(void* user, const char* key, void* buffer, size_t capacity, size_t* value_bytes, int64_t deadline_ns) {
  FUZZ_CHECK(IsStoreKey(key) && deadline_ns > 0, key);
  auto& in = *static_cast<Input*>(user);
  const gg_status_t code = in.empty() ? GG_NOT_FOUND : kCodes[in.Below(std::size(kCodes))];
  const std::string value = in.Text();
  std::memcpy(buffer, value.data(), std::min(value.size(), capacity));
  *value_bytes = value.size();
  if (in.Below(8) == 7) *value_bytes = in.Number<uint32_t>();
  return code;
}

CallbackStore MakeStore(Input& in) {
  gg_store_callbacks callbacks = GG_STORE_CALLBACKS_INIT;
  callbacks.user = &in;
  callbacks.set = Set;
  callbacks.get = Get;
  return CallbackStore(callbacks);
}

uint32_t WorldSize(Input& in) {
  constexpr uint32_t kSizes[] = {1, 2, 3, 8, 40};
  return kSizes[in.Below(std::size(kSizes))];
}

void TryHandshake(Input& in) {
  CallbackStore store = MakeStore(in);
  HandshakeOptions options;
  options.store = &store;
  options.prefix = "gradgate/0/0/";
  options.world_size = WorldSize(in);
  options.rank = static_cast<uint32_t>(in.Below(options.world_size));
  options.facts = {{"gradgate", "0.1.0"}, {"world_size", std::to_string(options.world_size)}, {"mode", "window"}};
  options.timeout_ns = 1;
  AgreedIds ids;
  const Status met = Handshake(options, &ids);
  if (met.ok()) return;
  FUZZ_CHECK(met.code() == Code::kDeadlineExceeded || met.code() == Code::kFailedPrecondition || met.code() == Code::kAborted ||
                 met.code() == Code::kUnavailable || met.code() == Code::kInternal,
             met.message());
}

void TryBoard(Input& in) {
  CallbackStore store = MakeStore(in);
  const uint32_t world_size = WorldSize(in);
  const auto rank = static_cast<uint32_t>(in.Below(world_size));
  ArrivalBoard board(&store, "gradgate/0/0/", rank, world_size);
  const uint64_t window = in.Number<uint64_t>(), round = in.Byte();
  board.Arrived(window, round, 1);
  board.GaveUp(window, round, 1);
  const std::string text = board.DescribeMissing(window, round, 1);
  FUZZ_CHECK(text.find("ranks [" + std::to_string(rank) + "]") != 0, "blames itself: " + text);
  board.Left(window, text, 1);
}

void TryBallot(Input& in) {
  std::array<int64_t, Ballot::kWords> reduced;
  for (int64_t& word : reduced) word = in.Number<int64_t>();
  const BallotResult result{std::span<const int64_t, Ballot::kWords>(reduced)};
  (void)(result.any_contributes() || result.all_close() || result.incompatible() || result.unequal());
  std::vector<int64_t> all(8 * Ballot::kFields);
  for (int64_t& field : all) field = in.Number<int8_t>();
  (void)DescribeDifferences(all, 8);
}

}  // namespace

std::vector<std::string> Seeds() {
  const auto value = [](SeedBuilder& to, const std::string& text) { to.Byte(0).Text(text).Byte(0); };
  std::vector<std::string> seeds;
  // Each rank first looks for a hello of its own that is there already, then sets its own.
  const std::string fresh = SeedBuilder().Byte(3).Text("").Byte(0).Byte(0);
  // Rank 0 of 2 reads a hello.
  for (const char* hello : {"gradgate=0.1.0\nworld_size=2\nmode=window\n", "gradgate=9\nmode=\n\n=x\nno equals", ""}) {
    SeedBuilder seed;
    seed.Byte(kHandshake).Byte(1).Byte(0).Raw(fresh);
    value(seed, hello);
    seeds.push_back(seed);
  }
  // Rank 1 reads a verdict.
  for (const char* verdict :
       {"ok 0123456789abcdef0123456789abcdef", "ok 0123", "4 no gradgate on ranks [2]", "10 differ", "x", ""}) {
    SeedBuilder seed;
    seed.Byte(kHandshake).Byte(1).Byte(1).Raw(fresh);
    value(seed, verdict);
    seeds.push_back(seed);
  }
  // A board with notes of three ranks.
  for (const char* note : {"3 1", "2 0", "3 0 it closed its session", "99999999999999999999 1", "7", " ", "3 1 \n"}) {
    SeedBuilder seed;
    seed.Byte(kBoard).Byte(2).Byte(0).Number(uint64_t{3}).Byte(1).Byte(0).Byte(0);
    value(seed, note);
    value(seed, note);
    seeds.push_back(seed);
  }
  SeedBuilder ballot;
  ballot.Byte(kBallot);
  for (const int64_t word : Ballot{5, 0, 2, 4, 1, 1, 0}.Encode()) ballot.Number(word);
  seeds.push_back(ballot);
  seeds.push_back(SeedBuilder().Byte(kBallot).Raw(std::string(8 * Ballot::kWords - 1, '\0')).Byte(0x80));
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradgate::fuzz::Input in(data, size);
  switch (in.Below(gradgate::fuzz::kModeCount)) {
    case gradgate::fuzz::kHandshake:
      gradgate::fuzz::TryHandshake(in);
      break;
    case gradgate::fuzz::kBoard:
      gradgate::fuzz::TryBoard(in);
      break;
    case gradgate::fuzz::kBallot:
      gradgate::fuzz::TryBallot(in);
      break;
  }
  return 0;
}
