#include "shim/stats/recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

// Younger than the C library of some systems that we build on.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace gradgate {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

int AddSeals(int fd, int seals) { return ::fcntl(fd, F_ADD_SEALS, seals); }

int64_t ClockNs(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

uint64_t RoundedPageBytes() {
  const uint64_t unit = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return (sizeof(page::StatsPage) + unit - 1) / unit * unit;
}

// Zero-terminated; cut before the character that does not fit whole.
template <size_t kBytes>
void CopyText(std::string_view text, char (&out)[kBytes]) {
  text = text.substr(0, text.find('\0'));
  size_t length = std::min(text.size(), kBytes - 1);
  if (length < text.size()) {
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  }
  std::memcpy(out, text.data(), length);
  std::memset(out + length, 0, kBytes - length);
}

Status Refused(const char* what, int error) {
  return Unavailable(std::string(what) + " failed: " + std::strerror(error) +
                     "; this process trains on, but the daemon cannot see its counters");
}

// Creates and maps the file, and seals it once the one writable mapping exists. On failure nothing is left behind.
Status MakeSealed(const Recorder::System& system, uint64_t bytes, int* fd_out, void** memory_out) {
  // Beyond this limit ftruncate would not only fail but raise SIGXFSZ in the trainer.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
    return Refused("making the stats page (ulimit -f)", EFBIG);
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int fd = system.memfd_create("gradgate-stats", kFlags | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) fd = system.memfd_create("gradgate-stats", kFlags);  // a kernel without that flag
  if (fd < 0) return Refused("memfd_create for the stats page", errno);

  const auto fail = [fd](const char* what) {
    const int error = errno;
    ::close(fd);
    return Refused(what, error);
  };
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return fail("ftruncate of the stats page");
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return fail("mmap of the stats page");

  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  int sealed = system.add_seals(fd, kSeals | F_SEAL_FUTURE_WRITE);
  if (sealed != 0 && errno == EINVAL) sealed = system.add_seals(fd, kSeals);  // a kernel without F_SEAL_FUTURE_WRITE
  if (sealed != 0) {
    Status status = fail("sealing the stats page");
    ::munmap(memory, bytes);
    return status;
  }
  *fd_out = fd;
  *memory_out = memory;
  return OkStatus();
}

void WriteIdentity(const RecorderIdentity& from, page::PageIdentity* to) {
  CopyText(from.job_name, to->job_name);
  std::memcpy(to->run_id, from.run_id, sizeof(to->run_id));
  std::memcpy(to->launch_id, from.launch_id, sizeof(to->launch_id));
  CopyText(GRADGATE_VERSION, to->shim_version);
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) == 0) CopyText(host, to->host_name);
  to->attempt = from.attempt;
  to->rank = from.rank;
  to->world_size = from.world_size;
  to->local_rank = from.local_rank;
  to->process_id = ::getpid();
  to->wall_time_ns = ClockNs(CLOCK_REALTIME);
  to->monotonic_ns = static_cast<uint64_t>(ClockNs(CLOCK_MONOTONIC));
  to->accumulate = from.accumulate;
  to->sync_mode = static_cast<uint8_t>(from.sync_mode);
  to->enforcement = static_cast<uint8_t>(from.enforcement);
  to->config_hash = from.config_hash;
}

void WriteHeader(page::PageHeader* header) {
  header->major = page::kMajor;
  header->minor = page::kMinor;
  header->header_bytes = sizeof(page::PageHeader);
  header->page_bytes = sizeof(page::StatsPage);
  header->layout_hash = page::kLayoutHash;
  header->window_slot_bytes = sizeof(page::WindowSlot);
  header->window_slot_count = page::kWindowSlots;
  header->event_slot_bytes = sizeof(page::EventSlot);
  header->event_slot_count = page::kEventSlots;
  header->magic.store(page::kMagic, std::memory_order_release);
}

// Forward only. Two threads may race, and the earlier of two instants may stay; a lock would cost more than it tells.
void Advance(page::U64& last_ns, int64_t now_ns) {
  const uint64_t now = static_cast<uint64_t>(now_ns);
  if (last_ns.load(kRelaxed) < now) last_ns.store(now, kRelaxed);
}

}  // namespace

const Recorder::System Recorder::kLinux = {&::memfd_create, &AddSeals};

Status Recorder::Create(const RecorderIdentity& identity, std::unique_ptr<Recorder>* out, const System& system) {
  const uint64_t bytes = RoundedPageBytes();
  int fd = -1;
  void* memory = nullptr;
  Status status = MakeSealed(system, bytes, &fd, &memory);
  if (!status.ok()) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
  }
  auto* page = new (memory) page::StatsPage();
  out->reset(new Recorder(page, bytes, fd));
  page->totals.sync_mode.store(static_cast<uint64_t>(identity.sync_mode), kRelaxed);
  WriteIdentity(identity, &page->identity);
  WriteHeader(&page->header);
  return status;
}

Recorder::Recorder(page::StatsPage* page, uint64_t mapped_bytes, int fd) : page_(page), mapped_bytes_(mapped_bytes), fd_(fd) {}

Recorder::~Recorder() {
  ::munmap(page_, mapped_bytes_);
  if (fd_ >= 0) ::close(fd_);
}

int64_t Recorder::NowNs() { return ClockNs(CLOCK_MONOTONIC); }

void Recorder::CollectiveIssued(GroupRole role, CollectiveOp op, TrafficClass traffic, uint64_t bytes, uint32_t tensors,
                                bool intended, uint32_t micro_step, int64_t now_ns) {
  page::CollectiveCell& cell = page_->cells[static_cast<uint32_t>(role)][static_cast<uint32_t>(op)];
  if (intended && traffic == TrafficClass::kGradient) AddShared(cell.intended_count, 1);
  AddShared(cell.issued_count[static_cast<uint32_t>(traffic)], 1);
  AddShared(cell.bytes[static_cast<uint32_t>(traffic)], bytes);
  AddShared(cell.tensor_count, tensors);
  Advance(cell.last_issue_ns, now_ns);
  Record(EventKind::kCollectiveIssued, role, op, traffic, micro_step, bytes, now_ns);
}

void Recorder::CollectiveDone(GroupRole role, CollectiveOp op, TrafficClass traffic, bool ok, uint32_t micro_step,
                              int64_t issue_ns, int64_t done_ns) {
  page::CollectiveCell& cell = page_->cells[static_cast<uint32_t>(role)][static_cast<uint32_t>(op)];
  const uint64_t duration_ns = done_ns > issue_ns ? static_cast<uint64_t>(done_ns - issue_ns) : 0;
  if (ok) {
    AddShared(cell.completed_count, 1);
    if (traffic == TrafficClass::kGradient) AddShared(cell.gradient_completed_count, 1);
    AddShared(cell.duration_ns, duration_ns);
    Advance(cell.last_complete_ns, done_ns);
  } else {
    AddShared(cell.failed_count, 1);
  }
  Record(ok ? EventKind::kCollectiveDone : EventKind::kCollectiveFailed, role, op, traffic, micro_step, duration_ns, done_ns);
}

void Recorder::Record(EventKind kind, GroupRole role, CollectiveOp op, TrafficClass traffic, uint32_t micro_step,
                      uint64_t value, int64_t now_ns) {
  const uint64_t index = page_->ring.event_next.fetch_add(1, kRelaxed);
  page::EventSlot& slot = page_->events[index % page::kEventSlots];
  // Odd: a thread that was overtaken by the whole ring still writes here. Above 2 · index: this thread was.
  uint64_t sequence = slot.sequence.load(kRelaxed);
  if (sequence % 2 != 0 || sequence > 2 * index ||
      !slot.sequence.compare_exchange_strong(sequence, 2 * index + 1, std::memory_order_acquire, kRelaxed)) {
    AddShared(page_->totals.event_dropped_count, 1);
    return;
  }
  // Acquire does not order the claim's own store before the payload; this does, and pairs with the reader's fence.
  std::atomic_thread_fence(std::memory_order_release);
  slot.time_ns.store(static_cast<uint64_t>(now_ns), kRelaxed);
  slot.what.store(page::PackWhat(kind, role, op, traffic, micro_step), kRelaxed);
  slot.value.store(value, kRelaxed);
  slot.sequence.store(2 * index + 2, std::memory_order_release);
}

void Recorder::WindowClosed(const page::WindowRecord& record) {
  using Words = uint64_t[page::kWindowWords];
  struct Packed {
    Words words;
  };
  const Packed packed = std::bit_cast<Packed>(record);
  const uint64_t index = page_->ring.window_next.load(kRelaxed);
  page::WindowSlot& slot = page_->windows[index % page::kWindowSlots];
  slot.sequence.store(2 * index + 1, kRelaxed);
  std::atomic_thread_fence(std::memory_order_release);  // odd before any word, as in Record
  for (uint32_t i = 0; i < page::kWindowWords; ++i) slot.words[i].store(packed.words[i], kRelaxed);
  slot.sequence.store(2 * index + 2, std::memory_order_release);
  page_->ring.window_next.store(index + 1, std::memory_order_release);
}

}  // namespace gradgate
