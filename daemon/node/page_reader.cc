#include "daemon/node/page_reader.h"

#include <atomic>
#include <cstring>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "daemon/node/rejection.h"
#include "daemon/node/text_check.h"

namespace gradgate {
namespace {

// Copies whole words, each with one relaxed load: the compiler may neither read a word twice nor tear it.
template <typename T>
T CopyWords(const void* from_untrusted) {
  static_assert(sizeof(T) % 8 == 0 && std::is_trivially_copyable_v<T>);
  uint64_t words[sizeof(T) / 8];
  const auto* from = static_cast<const uint64_t*>(from_untrusted);
  for (size_t i = 0; i < sizeof(T) / 8; ++i) words[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
  T value;
  std::memcpy(static_cast<void*>(&value), words, sizeof(value));
  return value;
}

// The header without its atomic.
struct HeaderCopy {
  uint64_t magic;
  uint16_t major;
  uint16_t minor;
  uint32_t header_bytes;
  uint64_t page_bytes;
  uint64_t layout_hash;
  uint32_t window_slot_bytes;
  uint32_t window_slot_count;
  uint32_t event_slot_bytes;
  uint32_t event_slot_count;
  uint64_t reserved[2];
};
static_assert(sizeof(HeaderCopy) == sizeof(page::PageHeader));
static_assert(offsetof(HeaderCopy, event_slot_count) == offsetof(page::PageHeader, event_slot_count));

absl::Status IdentityError(absl::string_view field, absl::string_view problem) {
  return Reject(Rejection::kPageIdentity, absl::StrFormat("identity: %s %s", field, problem));
}

absl::Status CopyText(absl::string_view field, const char* bytes, size_t size, std::string& out) {
  const void* end = std::memchr(bytes, 0, size);
  if (end == nullptr) return IdentityError(field, absl::StrFormat("has no terminating zero in %d bytes", size));
  const absl::string_view text(bytes, static_cast<const char*>(end) - bytes);
  if (!IsPrintableUtf8(text)) {
    return IdentityError(field, absl::StrFormat("\"%s\" is not printable UTF-8", absl::CHexEscape(std::string(text))));
  }
  out = std::string(text);
  return absl::OkStatus();
}

std::string Hexadecimal(const uint8_t (&bytes)[16]) {
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes), sizeof(bytes)));
}

absl::Status CheckNumbers(const page::PageIdentity& raw) {
  if (raw.world_size < 1 || raw.world_size > kMaxWorldSize) {
    return IdentityError("world_size", absl::StrFormat("is %d, not in 1 … %d", raw.world_size, kMaxWorldSize));
  }
  if (raw.rank >= raw.world_size) {
    return IdentityError("rank", absl::StrFormat("is %d, not below world_size %d", raw.rank, raw.world_size));
  }
  if (raw.local_rank >= raw.world_size) {
    return IdentityError("local_rank", absl::StrFormat("is %d, not below world_size %d", raw.local_rank, raw.world_size));
  }
  if (raw.attempt > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
    return IdentityError("attempt", absl::StrFormat("is %d, too large", raw.attempt));
  }
  if (raw.accumulate > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
    return IdentityError("accumulate", absl::StrFormat("is %d, too large", raw.accumulate));
  }
  if (raw.sync_mode > static_cast<uint8_t>(SyncMode::kAuto)) {
    return IdentityError("sync_mode", absl::StrFormat("is %d, not a mode", raw.sync_mode));
  }
  if (raw.enforcement > static_cast<uint8_t>(Enforcement::kEnforce)) {
    return IdentityError("enforcement", absl::StrFormat("is %d, not a value", raw.enforcement));
  }
  if (raw.wall_time_ns < 0) return IdentityError("wall_time_ns", absl::StrFormat("is %d, before 1970", raw.wall_time_ns));
  if (raw.process_id < 0) return IdentityError("process_id", absl::StrFormat("is %d, negative", raw.process_id));
  return absl::OkStatus();
}

}  // namespace

absl::Time RankIdentity::WallTime(uint64_t at_monotonic_ns) const {
  const auto signed_difference = static_cast<int64_t>(at_monotonic_ns - monotonic_ns);
  return start_time() + absl::Nanoseconds(signed_difference);
}

absl::Status CheckPageHeader(const page::StatsPage& page_untrusted) {
  const uint64_t magic = page_untrusted.header.magic.load(std::memory_order_acquire);
  if (magic == 0)
    return Reject(Rejection::kPageNotReady, "stats page is not ready: magic is zero; send Hello after writing it");
  if (magic != page::kMagic) {
    return Reject(Rejection::kPageMagic, absl::StrFormat("stats page magic is %016x, not %016x", magic, page::kMagic));
  }
  const auto header = CopyWords<HeaderCopy>(&page_untrusted.header);
  if (header.major != page::kMajor) {
    return Reject(Rejection::kPageVersion,
                  absl::StrFormat("stats page version %d.%d, this daemon reads %d.%d; use a shim and a daemon of one major",
                                  header.major, header.minor, page::kMajor, page::kMinor));
  }
  if (header.layout_hash != page::kLayoutHash) {
    return Reject(Rejection::kPageLayout,
                  absl::StrFormat("stats page layout %016x is not this daemon's %016x; use a shim and a daemon of one release",
                                  header.layout_hash, page::kLayoutHash));
  }
  if (header.header_bytes != sizeof(page::PageHeader) || header.page_bytes < sizeof(page::StatsPage) ||
      header.window_slot_bytes != sizeof(page::WindowSlot) || header.window_slot_count != page::kWindowSlots ||
      header.event_slot_bytes != sizeof(page::EventSlot) || header.event_slot_count != page::kEventSlots) {
    return Reject(
        Rejection::kPageHeader,
        absl::StrFormat("stats page header: header %d, page %d, windows %d x %d, events %d x %d bytes; expected %d, %d, "
                        "%d x %d, %d x %d",
                        header.header_bytes, header.page_bytes, header.window_slot_count, header.window_slot_bytes,
                        header.event_slot_count, header.event_slot_bytes, sizeof(page::PageHeader), sizeof(page::StatsPage),
                        page::kWindowSlots, sizeof(page::WindowSlot), page::kEventSlots, sizeof(page::EventSlot)));
  }
  return absl::OkStatus();
}

absl::StatusOr<RankIdentity> ReadIdentity(const page::StatsPage& page_untrusted) {
  const auto raw = CopyWords<page::PageIdentity>(&page_untrusted.identity);
  RankIdentity identity;
  if (absl::Status s = CopyText("job_name", raw.job_name, sizeof(raw.job_name), identity.job_name); !s.ok()) return s;
  if (absl::Status s = CopyText("shim_version", raw.shim_version, sizeof(raw.shim_version), identity.shim_version); !s.ok()) {
    return s;
  }
  if (absl::Status s = CopyText("host_name", raw.host_name, sizeof(raw.host_name), identity.host_name); !s.ok()) return s;
  if (absl::Status s = CheckNumbers(raw); !s.ok()) return s;
  identity.run_id = Hexadecimal(raw.run_id);
  identity.launch_id = Hexadecimal(raw.launch_id);
  if (identity.launch_id.find_first_not_of('0') == std::string::npos) identity.launch_id.clear();
  identity.attempt = raw.attempt;
  identity.rank = raw.rank;
  identity.world_size = raw.world_size;
  identity.local_rank = raw.local_rank;
  identity.process_id = raw.process_id;
  identity.wall_time_ns = raw.wall_time_ns;
  identity.monotonic_ns = raw.monotonic_ns;
  identity.accumulate = raw.accumulate;
  identity.sync_mode = static_cast<SyncMode>(raw.sync_mode);
  identity.enforcement = static_cast<Enforcement>(raw.enforcement);
  identity.config_hash = raw.config_hash;
  return identity;
}

Counters ReadCounters(const page::StatsPage& page_untrusted) { return CopyWords<Counters>(&page_untrusted.totals); }

}  // namespace gradgate
