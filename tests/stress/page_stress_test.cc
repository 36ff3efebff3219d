// Two processes on one page: one writes windows and events as fast as it can, the other reads them as the daemon does. Every
// record tells by its contents whether it is whole, and every index is accounted for.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "daemon/node/page_mapping.h"
#include "daemon/node/page_reader.h"
#include "daemon/node/unique_fd.h"
#include "gtest/gtest.h"
#include "shim/stats/recorder.h"
#include "tests/stress/stress_seconds.h"

namespace gradgate {
namespace {

using testing::StressSeconds;

constexpr int kEventThreads = 2;

uint64_t Mix(uint64_t value) {
  value = (value ^ value >> 31) * 0x9e3779b97f4a7c15;
  return value ^ value >> 29;
}

// A record whose every field follows from its index, within what the reader lets pass.
page::WindowRecord RecordOf(uint64_t index) {
  uint64_t words[page::kWindowWords];
  for (uint32_t i = 0; i < page::kWindowWords; ++i) words[i] = Mix(index * page::kWindowWords + i);
  page::WindowRecord record;
  std::memcpy(&record, words, sizeof(record));
  record.window_index = index;
  record.kind = static_cast<uint8_t>(1 + index % 3);
  record.mode = static_cast<uint8_t>(index % 5);
  record.flags &= page::kWindowFlagsMask;
  record.end_ns |= uint64_t{1} << 63;
  record.begin_ns &= ~(uint64_t{1} << 63);
  return record;
}

// An event whose time and payload follow from one another; its index is not known to who writes it.
void WriteEvent(Recorder& recorder, uint64_t serial) {
  recorder.Record(EventKind::kCollectiveDone, static_cast<GroupRole>(serial % kGroupRoleCount), CollectiveOp::kAllGather,
                  TrafficClass::kOther, static_cast<uint32_t>(Mix(serial)), Mix(serial + 1), static_cast<int64_t>(serial));
}
bool IsWhole(const page::Event& event) {
  const uint64_t serial = event.time_ns;
  return event.value == Mix(serial + 1) && event.micro_step == static_cast<uint32_t>(Mix(serial)) &&
         event.role == static_cast<GroupRole>(serial % kGroupRoleCount) && event.kind == EventKind::kCollectiveDone &&
         event.op == CollectiveOp::kAllGather && event.traffic == TrafficClass::kOther;
}

// What the processes agree on outside the page.
struct Control {
  std::atomic<bool> stop;
  std::atomic<uint64_t> windows;
  std::atomic<uint64_t> events;
};

[[noreturn]] void Write(Recorder& recorder, Control& control) {
  std::thread writers[kEventThreads];
  for (uint64_t thread = 0; thread < kEventThreads; ++thread) {
    writers[thread] = std::thread([&recorder, &control, thread] {
      uint64_t serial = thread << 60;
      while (!control.stop.load(std::memory_order_relaxed)) WriteEvent(recorder, serial++);
      control.events.fetch_add(serial - (thread << 60));
    });
  }
  uint64_t window = 0;
  while (!control.stop.load(std::memory_order_relaxed)) recorder.WindowClosed(RecordOf(window++));
  control.windows.store(window);
  for (std::thread& writer : writers) writer.join();
  _exit(0);
}

struct Sums {
  WindowReport windows;
  EventReport events;
  uint64_t broken_windows = 0;
  uint64_t broken_events = 0;
  uint64_t passes = 0;
};

void Read(const page::StatsPage& page_untrusted, Pass pass, RingCursor& window_cursor, RingCursor& event_cursor, Sums& sums) {
  const WindowReport windows = ReadWindows(page_untrusted, window_cursor, pass, [&](const page::WindowRecord& record) {
    const page::WindowRecord whole = RecordOf(record.window_index);
    if (std::memcmp(&record, &whole, sizeof(record)) != 0) ++sums.broken_windows;
  });
  const EventReport events = ReadEvents(page_untrusted, event_cursor, pass, [&](const page::Event& event) {
    if (!IsWhole(event)) ++sums.broken_events;
  });
  sums.windows.delivered += windows.delivered;
  sums.windows.torn += windows.torn;
  sums.windows.invalid += windows.invalid;
  sums.windows.missed += windows.missed;
  sums.events.delivered += events.delivered;
  sums.events.overwritten += events.overwritten;
  sums.events.dropped += events.dropped;
  sums.events.invalid += events.invalid;
  ++sums.passes;
}

TEST(PageStress, TwoProcessesNeverYieldATornRecord) {
  std::unique_ptr<Recorder> recorder;
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  void* shared = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Control& control = *new (shared) Control{};
  // The page is the child's; the parent gets its descriptor by /proc, which needs no socket.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!Recorder::Create({}, &recorder).ok()) _exit(1);
    const int fd = recorder->fd();
    if (write(fds[1], &fd, sizeof(fd)) != sizeof(fd)) _exit(2);
    Write(*recorder, control);
  }
  int remote = -1;
  ASSERT_EQ(read(fds[0], &remote, sizeof(remote)), static_cast<ssize_t>(sizeof(remote)));
  const std::string path = "/proc/" + std::to_string(child) + "/fd/" + std::to_string(remote);
  const UniqueFd page_fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  auto mapping = PageMapping::Map(page_fd.get());
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  const page::StatsPage& page_untrusted = *(*mapping)->page_untrusted();

  const int seconds = StressSeconds(5);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  RingCursor window_cursor, event_cursor;
  Sums sums;
  while (std::chrono::steady_clock::now() < end) Read(page_untrusted, Pass::kTick, window_cursor, event_cursor, sums);
  control.stop = true;
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  Read(page_untrusted, Pass::kFinal, window_cursor, event_cursor, sums);

  const auto print = [](const char* what, uint64_t value) {
    std::printf("%-18s %llu\n", what, static_cast<unsigned long long>(value));
  };
  print("seconds", static_cast<uint64_t>(seconds));
  print("passes", sums.passes);
  print("windows written", control.windows.load());
  print("windows read", sums.windows.delivered);
  print("windows missed", sums.windows.missed);
  print("events written", control.events.load());
  print("events read", sums.events.delivered);
  print("events overwritten", sums.events.overwritten);
  print("events dropped", sums.events.dropped);
  EXPECT_EQ(sums.broken_windows, 0u);
  EXPECT_EQ(sums.broken_events, 0u);
  EXPECT_EQ(sums.windows.invalid + sums.events.invalid + sums.windows.torn, 0u);
  EXPECT_EQ(sums.windows.delivered + sums.windows.missed, control.windows.load());
  EXPECT_EQ(sums.events.delivered + sums.events.overwritten + sums.events.dropped, control.events.load());
  EXPECT_GT(sums.windows.delivered, 0u);
  EXPECT_GT(sums.windows.missed, 0u);
  EXPECT_GT(sums.events.delivered, 0u);
  EXPECT_GT(sums.events.overwritten, 0u);
  munmap(shared, sizeof(Control));
}

}  // namespace
}  // namespace gradgate
