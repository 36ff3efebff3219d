#include "tests/daemon/fake_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "gtest/gtest.h"

namespace gradgate::testing {
namespace {

void Copy(const std::string& text, char* out, size_t size) { std::memcpy(out, text.data(), std::min(text.size(), size)); }

void Publish(page::U64& sequence, page::U64* words, const void* payload, size_t count, uint64_t index) {
  sequence.store(2 * index + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 0; i < count; ++i) {
    uint64_t word;
    std::memcpy(&word, static_cast<const char*>(payload) + i * 8, 8);
    words[i].store(word, std::memory_order_relaxed);
  }
  sequence.store(2 * index + 2, std::memory_order_release);
}

}  // namespace

FakePage::FakePage(const FakeIdentity& identity, const Options& options)
    : fd_(memfd_create("fake", MFD_CLOEXEC | (options.sealable ? MFD_ALLOW_SEALING : 0))),
      bytes_(options.bytes),
      page_(nullptr) {
  EXPECT_TRUE(fd_) << "memfd_create failed";
  EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(bytes_)), 0);
  if (bytes_ >= sizeof(page::StatsPage)) {
    void* address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    EXPECT_NE(address, MAP_FAILED);
    page_ = new (address) page::StatsPage;  // a memfd is born zero
    page::PageIdentity& out = page_->identity;
    Copy(identity.job_name, out.job_name, sizeof(out.job_name));
    std::memcpy(out.run_id, identity.run_id_bytes.data(), sizeof(out.run_id));
    Copy("9.8.7", out.shim_version, sizeof(out.shim_version));
    Copy("node-a", out.host_name, sizeof(out.host_name));
    out.attempt = identity.attempt;
    out.rank = identity.rank;
    out.world_size = identity.world_size;
    out.local_rank = identity.rank;
    out.process_id = getpid();
    out.wall_time_ns = identity.wall_time_ns;
    out.monotonic_ns = 1'000'000'000;
    out.accumulate = 4;
    out.sync_mode = static_cast<uint8_t>(SyncMode::kWindow);
    out.enforcement = static_cast<uint8_t>(Enforcement::kEnforce);
    page::PageHeader& header = page_->header;
    header.major = page::kMajor;
    header.minor = page::kMinor;
    header.header_bytes = sizeof(page::PageHeader);
    header.page_bytes = sizeof(page::StatsPage);
    header.layout_hash = page::kLayoutHash;
    header.window_slot_bytes = sizeof(page::WindowSlot);
    header.window_slot_count = page::kWindowSlots;
    header.event_slot_bytes = sizeof(page::EventSlot);
    header.event_slot_count = page::kEventSlots;
    header.magic.store(page::kMagic, std::memory_order_release);
  }
  if (options.sealable) {
    const int seals = options.seals >= 0 ? options.seals : F_SEAL_SHRINK | F_SEAL_GROW;
    EXPECT_EQ(fcntl(fd_.get(), F_ADD_SEALS, seals), 0);
  }
}

FakePage::~FakePage() {
  if (page_ != nullptr) munmap(page_, bytes_);
}

std::unique_ptr<PageMapping> FakePage::Map() const {
  auto mapping = PageMapping::Map(fd_.get());
  EXPECT_TRUE(mapping.ok()) << mapping.status();
  return *std::move(mapping);
}

page::WindowRecord FakePage::MakeRecord(uint64_t index) {
  page::WindowRecord record{};
  record.window_index = index;
  record.kind = static_cast<uint8_t>(WindowKind::kFull);
  record.mode = static_cast<uint8_t>(SyncMode::kWindow);
  record.micro_steps = record.planned_micro_steps = record.min_micro_steps = record.max_micro_steps = 4;
  record.last_reduction_at = 4;
  record.intended_reductions = record.issued_reductions = 1;
  record.suppressed_reductions = 3;
  record.intended_collectives = record.issued_collectives = record.completed_collectives = 2;
  record.gradient_bytes = 1000;
  record.begin_ns = 2'000'000'000 + index * 100'000'000;
  record.end_ns = record.begin_ns + 50'000'000;
  record.exposed_ns = 5'000'000;
  return record;
}

void FakePage::CloseWindow() { CloseWindow(MakeRecord(page_->ring.window_next.load())); }

void FakePage::CloseWindow(const page::WindowRecord& record) {
  const uint64_t index = page_->ring.window_next.load();
  page::WindowSlot& slot = page_->windows[index % page::kWindowSlots];
  Publish(slot.sequence, slot.words, &record, page::kWindowWords, index);
  page_->ring.window_next.store(index + 1, std::memory_order_release);
  page_->totals.window_full_count.fetch_add(1);
  page_->totals.window_index.fetch_add(1);
}

void FakePage::TearWindow(bool counted) {
  const uint64_t index = page_->ring.window_next.load();
  page_->windows[index % page::kWindowSlots].sequence.store(2 * index + 1);
  if (counted) page_->ring.window_next.store(index + 1);
}

void FakePage::AddEvent(EventKind kind, uint64_t value) {
  const uint64_t index = page_->ring.event_next.fetch_add(1);
  page::EventSlot& slot = page_->events[index % page::kEventSlots];
  const uint64_t payload[3] = {
      index, page::PackWhat(kind, GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, 1), value};
  Publish(slot.sequence, &slot.time_ns, payload, 3, index);
}

void FakePage::ReserveEvent() { page_->ring.event_next.fetch_add(1); }

}  // namespace gradgate::testing
