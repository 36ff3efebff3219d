#include "shim/stats/recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "tests/shim/stats/page_reader.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<Recorder> Make(const RecorderIdentity& identity = {}) {
  std::unique_ptr<Recorder> recorder;
  const Status status = Recorder::Create(identity, &recorder);
  EXPECT_TRUE(status.ok()) << status.message();
  return recorder;
}

int Seals(const Recorder& recorder) { return ::fcntl(recorder.fd(), F_GET_SEALS); }

TEST(Recorder, HeaderSaysWhatTheLayoutIs) {
  const auto recorder = Make();
  const page::PageHeader& header = recorder->page().header;
  EXPECT_EQ(header.magic.load(std::memory_order_acquire), page::kMagic);
  EXPECT_EQ(header.major, page::kMajor);
  EXPECT_EQ(header.minor, page::kMinor);
  EXPECT_EQ(header.header_bytes, 64u);
  EXPECT_EQ(header.page_bytes, sizeof(page::StatsPage));
  EXPECT_EQ(header.layout_hash, page::kLayoutHash);
  EXPECT_EQ(header.window_slot_bytes, 192u);
  EXPECT_EQ(header.window_slot_count, page::kWindowSlots);
  EXPECT_EQ(header.event_slot_bytes, 32u);
  EXPECT_EQ(header.event_slot_count, page::kEventSlots);
}

TEST(Recorder, IdentityIsPublished) {
  RecorderIdentity identity;
  identity.job_name = "digits";
  for (uint8_t i = 0; i < 16; ++i) identity.run_id[i] = static_cast<uint8_t>(i + 1);
  for (uint8_t i = 0; i < 16; ++i) identity.launch_id[i] = static_cast<uint8_t>(i + 101);
  identity.attempt = 2;
  identity.rank = 3;
  identity.world_size = 4;
  identity.local_rank = 1;
  identity.accumulate = 7;
  identity.sync_mode = SyncMode::kWindowReplica;
  identity.enforcement = Enforcement::kAudit;
  identity.config_hash = 0x1234567890abcdef;
  const int64_t before_ns = Recorder::NowNs();
  const auto recorder = Make(identity);
  const page::PageIdentity& published = recorder->page().identity;
  EXPECT_STREQ(published.job_name, "digits");
  EXPECT_EQ(std::memcmp(published.run_id, identity.run_id, 16), 0);
  EXPECT_EQ(std::memcmp(published.launch_id, identity.launch_id, 16), 0);
  EXPECT_STREQ(published.shim_version, GRADGATE_VERSION);
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  EXPECT_EQ(std::string(published.host_name), std::string(host).substr(0, 63));
  EXPECT_EQ(published.attempt, 2u);
  EXPECT_EQ(published.rank, 3u);
  EXPECT_EQ(published.world_size, 4u);
  EXPECT_EQ(published.local_rank, 1u);
  EXPECT_EQ(published.process_id, ::getpid());
  EXPECT_GE(published.monotonic_ns, static_cast<uint64_t>(before_ns));
  EXPECT_LE(published.monotonic_ns, static_cast<uint64_t>(Recorder::NowNs()));
  EXPECT_GT(published.wall_time_ns, int64_t{1'600'000'000} * 1'000'000'000);
  EXPECT_EQ(published.accumulate, 7u);
  EXPECT_EQ(published.sync_mode, static_cast<uint8_t>(SyncMode::kWindowReplica));
  EXPECT_EQ(published.enforcement, static_cast<uint8_t>(Enforcement::kAudit));
  EXPECT_EQ(published.config_hash, identity.config_hash);
  EXPECT_EQ(recorder->page().totals.sync_mode.load(), static_cast<uint64_t>(SyncMode::kWindowReplica));
}

TEST(Recorder, LongNameIsCutBeforeTheCharacterThatDoesNotFit) {
  RecorderIdentity identity;
  identity.job_name = std::string(126, 'a') + "ä";  // 128 bytes; the array holds 127 and a zero
  EXPECT_EQ(std::string(Make(identity)->page().identity.job_name), std::string(126, 'a'));
  identity.job_name = std::string(125, 'a') + "ä";  // fits exactly
  EXPECT_EQ(std::string(Make(identity)->page().identity.job_name), identity.job_name);
  identity.job_name = std::string(124, 'a') + "😀b";
  EXPECT_EQ(std::string(Make(identity)->page().identity.job_name), std::string(124, 'a'));
  identity.job_name = std::string("a\0b", 3);
  EXPECT_EQ(std::string(Make(identity)->page().identity.job_name), "a");
}

TEST(Recorder, PageCannotBeResizedUnsealedOrMappedWritable) {
  const auto recorder = Make();
  const int fd = recorder->fd();
  ASSERT_GE(fd, 0);
  struct stat info {};
  ASSERT_EQ(::fstat(fd, &info), 0);
  EXPECT_GE(info.st_size, static_cast<off_t>(sizeof(page::StatsPage)));
  EXPECT_EQ(info.st_size % ::sysconf(_SC_PAGESIZE), 0);
  EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);

  EXPECT_EQ(::ftruncate(fd, info.st_size / 2), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd, info.st_size * 2), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(Recorder, CountsAnIssuedGradientCollective) {
  const auto recorder = Make();
  recorder->CollectiveIssued(GroupRole::kShard, CollectiveOp::kReduceScatter, TrafficClass::kGradient, 4096, 3, true, 2, 1000);
  recorder->CollectiveIssued(GroupRole::kShard, CollectiveOp::kReduceScatter, TrafficClass::kGradient, 100, 1, false, 3, 900);
  recorder->CollectiveIssued(GroupRole::kShard, CollectiveOp::kReduceScatter, TrafficClass::kOurs, 16, 1, true, 3, 800);
  const page::CollectiveCell& cell = recorder->page().cells[1][1];
  EXPECT_EQ(cell.intended_count.load(), 1u);  // ours are never intended gradient collectives
  EXPECT_EQ(cell.issued_count[0].load(), 2u);
  EXPECT_EQ(cell.issued_count[1].load(), 1u);
  EXPECT_EQ(cell.issued_count[2].load(), 0u);
  EXPECT_EQ(cell.bytes[0].load(), 4196u);
  EXPECT_EQ(cell.bytes[1].load(), 16u);
  EXPECT_EQ(cell.tensor_count.load(), 5u);
  EXPECT_EQ(cell.last_issue_ns.load(), 1000u);  // never goes back
  EXPECT_EQ(recorder->page().cells[0][0].issued_count[0].load(), 0u);

  const auto event = test::ReadEvent(recorder->page(), 0);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->index, 0u);
  EXPECT_EQ(event->time_ns, 1000u);
  EXPECT_EQ(event->kind, EventKind::kCollectiveIssued);
  EXPECT_EQ(event->role, GroupRole::kShard);
  EXPECT_EQ(event->op, CollectiveOp::kReduceScatter);
  EXPECT_EQ(event->traffic, TrafficClass::kGradient);
  EXPECT_EQ(event->micro_step, 2u);
  EXPECT_EQ(event->value, 4096u);
}

TEST(Recorder, CountsEndsByOutcome) {
  const auto recorder = Make();
  const auto done = [&](TrafficClass traffic, bool ok, int64_t issue_ns, int64_t done_ns) {
    recorder->CollectiveDone(GroupRole::kDp, CollectiveOp::kAllReduce, traffic, ok, 4, issue_ns, done_ns);
  };
  done(TrafficClass::kGradient, true, 100, 350);
  done(TrafficClass::kOther, true, 100, 200);
  done(TrafficClass::kGradient, false, 100, 5000);
  done(TrafficClass::kGradient, true, 300, 299);  // clocks of two threads: no huge unsigned duration
  const page::CollectiveCell& cell = recorder->page().cells[0][0];
  EXPECT_EQ(cell.completed_count.load(), 3u);
  EXPECT_EQ(cell.gradient_completed_count.load(), 2u);
  EXPECT_EQ(cell.failed_count.load(), 1u);
  EXPECT_EQ(cell.unknown_count.load(), 0u);
  EXPECT_EQ(cell.duration_ns.load(), 350u);
  EXPECT_EQ(cell.last_complete_ns.load(), 350u);  // a failed one did not complete

  EXPECT_EQ(test::ReadEvent(recorder->page(), 0)->kind, EventKind::kCollectiveDone);
  EXPECT_EQ(test::ReadEvent(recorder->page(), 0)->value, 250u);
  EXPECT_EQ(test::ReadEvent(recorder->page(), 2)->kind, EventKind::kCollectiveFailed);
  EXPECT_EQ(test::ReadEvent(recorder->page(), 2)->value, 4900u);
}

TEST(Recorder, WindowsGoByClosingOrderAndTheOldestIsOverwritten) {
  const auto recorder = Make();
  EXPECT_FALSE(test::ReadWindow(recorder->page(), 0).has_value());
  for (uint64_t i = 0; i < page::kWindowSlots + 3; ++i) {
    page::WindowRecord record{};
    record.window_index = 10 + i;
    record.kind = static_cast<uint8_t>(WindowKind::kPartial);
    record.micro_steps = static_cast<uint32_t>(i);
    record.policy_version = i * 3;
    recorder->WindowClosed(record);
  }
  const page::StatsPage& page = recorder->page();
  EXPECT_EQ(page.ring.window_next.load(), page::kWindowSlots + 3u);
  EXPECT_FALSE(test::ReadWindow(page, 2).has_value());
  for (uint64_t i = 3; i < page::kWindowSlots + 3; ++i) {
    const auto record = test::ReadWindow(page, i);
    ASSERT_TRUE(record.has_value()) << i;
    EXPECT_EQ(record->window_index, 10 + i);
    EXPECT_EQ(record->kind, static_cast<uint8_t>(WindowKind::kPartial));
    EXPECT_EQ(record->micro_steps, i);
    EXPECT_EQ(record->policy_version, i * 3);
  }
}

// What the handler of a write fault finds: it stands where a kill would, in the middle of a window's record.
page::StatsPage* faulted_page = nullptr;
void* faulted_memory = nullptr;
uint64_t sequence_in_fault = 0;

void OnWriteFault(int) {
  sequence_in_fault = faulted_page->windows[7].sequence.load();
  if (::mprotect(faulted_memory, 4096, PROT_READ | PROT_WRITE) != 0) ::_exit(9);
}

TEST(Recorder, WindowIsMarkedAsBeingWrittenBeforeItsFirstWord) {
  if (::sysconf(_SC_PAGESIZE) != 4096)
    GTEST_SKIP() << "needs memory pages of 4096 bytes: window 7 lies across the second and third";
  const auto recorder = Make();
  for (int i = 0; i < 7; ++i) recorder->WindowClosed({});
  faulted_page = &recorder->page();
  faulted_memory = reinterpret_cast<char*>(faulted_page) + 8192;
  ASSERT_LT(static_cast<void*>(&faulted_page->windows[7].words[0]), faulted_memory);
  ASSERT_GT(static_cast<void*>(&faulted_page->windows[8]), faulted_memory);

  struct sigaction action {};
  struct sigaction former {};
  action.sa_handler = &OnWriteFault;
  ASSERT_EQ(::sigaction(SIGSEGV, &action, &former), 0);
  ASSERT_EQ(::mprotect(faulted_memory, 4096, PROT_READ), 0);
  recorder->WindowClosed({});
  ASSERT_EQ(::sigaction(SIGSEGV, &former, nullptr), 0);
  EXPECT_EQ(sequence_in_fault, 2u * 7 + 1);
  EXPECT_TRUE(test::ReadWindow(recorder->page(), 7).has_value());
}

void ExpectWorksUnexported(const Status& status, Recorder* recorder, const char* call) {
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(call), HasSubstr("the daemon cannot see its counters")));
  ASSERT_NE(recorder, nullptr);
  EXPECT_EQ(recorder->fd(), -1);
  recorder->CollectiveIssued(GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, 8, 1, true, 1, 5);
  recorder->WindowClosed({});
  EXPECT_EQ(recorder->page().cells[0][0].issued_count[0].load(), 1u);
  EXPECT_EQ(recorder->page().header.magic.load(), page::kMagic);
}

TEST(Recorder, WithoutAFreeDescriptorItCountsPrivately) {
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  rlimit none = former;
  none.rlim_cur = 0;
  std::unique_ptr<Recorder> recorder;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status status = Recorder::Create({}, &recorder);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &former), 0);
  ExpectWorksUnexported(status, recorder.get(), "memfd_create");
}

TEST(Recorder, WhereMemfdIsForbiddenItCountsPrivately) {
  Recorder::System system = Recorder::kLinux;
  system.memfd_create = [](const char*, unsigned) {
    errno = EPERM;
    return -1;
  };
  std::unique_ptr<Recorder> recorder;
  const Status status = Recorder::Create({}, &recorder, system);
  ExpectWorksUnexported(status, recorder.get(), "memfd_create");
}

TEST(Recorder, WhereSealsAreRefusedItCountsPrivately) {
  Recorder::System system = Recorder::kLinux;
  system.memfd_create = [](const char* name, unsigned flags) {
    return ::memfd_create(name, flags & MFD_CLOEXEC);  // without sealing: the kernel itself refuses the seals
  };
  std::unique_ptr<Recorder> recorder;
  const Status status = Recorder::Create({}, &recorder, system);
  ExpectWorksUnexported(status, recorder.get(), "sealing");
}

TEST(Recorder, KernelWithoutNoexecSealIsAskedAgainWithoutIt) {
  Recorder::System system = Recorder::kLinux;
  system.memfd_create = [](const char* name, unsigned flags) {
    if ((flags & ~(MFD_CLOEXEC | MFD_ALLOW_SEALING)) == 0) return ::memfd_create(name, flags);
    errno = EINVAL;
    return -1;
  };
  std::unique_ptr<Recorder> recorder;
  const Status status = Recorder::Create({}, &recorder, system);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Seals(*recorder) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

TEST(Recorder, KernelWithoutFutureWriteSealStillSealsTheSize) {
  Recorder::System system = Recorder::kLinux;
  system.add_seals = [](int fd, int seals) {
    if ((seals & ~(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)) == 0) return ::fcntl(fd, F_ADD_SEALS, seals);
    errno = EINVAL;
    return -1;
  };
  std::unique_ptr<Recorder> recorder;
  const Status status = Recorder::Create({}, &recorder, system);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Seals(*recorder) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

}  // namespace
}  // namespace gradgate
