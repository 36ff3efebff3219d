#include "tests/daemon/hostile.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <utility>

#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate::testing {
namespace {

UniqueFd Unlinked(std::string pattern) {
  UniqueFd file(mkstemp(pattern.data()));
  EXPECT_TRUE(file) << pattern;
  unlink(pattern.c_str());
  EXPECT_EQ(ftruncate(file.get(), sizeof(page::StatsPage)), 0);
  return file;
}

UniqueFd Page(const FakePage::Options& options) { return UniqueFd(dup(FakePage({}, options).fd())); }

UniqueFd ZeroPage() {
  UniqueFd file(memfd_create("zero", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), sizeof(page::StatsPage)), 0);
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  return file;
}

}  // namespace

std::vector<WrongDescriptor> WrongDescriptors() {
  std::vector<WrongDescriptor> all;
  const auto add = [&all](const char* what, UniqueFd fd, Rejection reason) {
    EXPECT_TRUE(fd) << what;
    all.push_back({what, std::move(fd), reason});
  };
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  add("end of a pipe", UniqueFd(ends[0]), Rejection::kPageNotMemfd);
  add("other end of a pipe", UniqueFd(ends[1]), Rejection::kPageNotMemfd);
  add("socket", UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), Rejection::kPageNotMemfd);
  add("/dev/zero", UniqueFd(open("/dev/zero", O_RDWR | O_CLOEXEC)), Rejection::kPageNotMemfd);
  add("directory", UniqueFd(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), Rejection::kPageNotMemfd);
  add("file on disk", Unlinked(::testing::TempDir() + "/page_XXXXXX"), Rejection::kPageNotMemfd);
  add("unlinked file on tmpfs", Unlinked("/dev/shm/page_XXXXXX"), Rejection::kPageUnsealed);
  add("memfd without seals", Page({.seals = 0}), Rejection::kPageUnsealed);
  add("memfd that can grow", Page({.seals = F_SEAL_SHRINK}), Rejection::kPageUnsealed);
  add("memfd that cannot be sealed", Page({.sealable = false}), Rejection::kPageUnsealed);
  add("short memfd", Page({.bytes = 4096}), Rejection::kPageShort);
  add("empty memfd", Page({.bytes = 0}), Rejection::kPageShort);
  add("memfd of zeros", ZeroPage(), Rejection::kPageNotReady);
  return all;
}

LingeringSocket::LingeringSocket() {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  fd = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  peer = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(peer);
  const std::vector<char> bytes(1 << 16);
  while (send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  const linger for_an_hour{1, 3600};
  EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &for_an_hour, sizeof(for_an_hour)), 0);
}

void ScribbleWord(page::StatsPage& page, std::mt19937_64& random) {
  auto* words = reinterpret_cast<uint64_t*>(&page);
  constexpr uint64_t kWords = sizeof(page::StatsPage) / 8;
  constexpr uint64_t kRingWord = offsetof(page::StatsPage, ring) / 8;
  // The counters and rings' ends are a small part of the page, but decide most.
  const uint64_t place = random() % 4 == 0 ? random() % (kRingWord + 8) : random() % kWords;
  uint64_t value = random();
  switch (random() % 6) {
    case 0:
      value %= 64;
      break;
    case 1:
      value = page::kMagic;
      break;
    case 2:
      value = __atomic_load_n(words + place, __ATOMIC_RELAXED) + value % 5 - 2;
      break;
    case 3:
      value = page.ring.event_next.load(std::memory_order_relaxed) * 2 + value % 5 - 2;
      break;
    case 4:
      value >>= value % 64;
      break;
    default:
      break;
  }
  __atomic_store_n(words + place, value, __ATOMIC_RELAXED);
}

}  // namespace gradgate::testing
