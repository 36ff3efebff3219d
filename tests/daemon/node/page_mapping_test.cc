#include "daemon/node/page_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "daemon/node/rejection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using ::testing::HasSubstr;

absl::Status MapError(int fd) { return PageMapping::Map(fd).status(); }

void ExpectRejected(const absl::Status& status, Rejection reason, const std::string& text) {
  EXPECT_EQ(RejectionOf(status), reason) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(PageMapping, SealedMemfdIsMappedAndReadable) {
  testing::FakePage page({});
  const auto mapping = page.Map();
  EXPECT_EQ(mapping->page_untrusted()->header.magic.load(), page::kMagic);
}

TEST(PageMapping, MappingOutlivesTheTrainersDescriptor) {
  auto page = std::make_unique<testing::FakePage>(testing::FakeIdentity{});
  const auto mapping = page->Map();
  page.reset();
  EXPECT_EQ(mapping->page_untrusted()->header.magic.load(), page::kMagic);
}

TEST(PageMapping, UnsealedIsRefused) {
  testing::FakePage page({}, {.seals = 0});
  ExpectRejected(MapError(page.fd()), Rejection::kPageUnsealed, "F_SEAL_SHRINK");
}

TEST(PageMapping, SealedAgainstShrinkingAloneIsRefused) {
  testing::FakePage page({}, {.seals = F_SEAL_SHRINK});
  ExpectRejected(MapError(page.fd()), Rejection::kPageUnsealed, "F_SEAL_GROW");
}

TEST(PageMapping, MemfdThatCannotBeSealedIsRefused) {
  testing::FakePage page({}, {.sealable = false});
  ExpectRejected(MapError(page.fd()), Rejection::kPageUnsealed, "needs F_SEAL_SHRINK");
}

TEST(PageMapping, ShortPageIsRefused) {
  testing::FakePage page({}, {.bytes = sizeof(page::StatsPage) - 1});
  ExpectRejected(MapError(page.fd()), Rejection::kPageShort, "has 186943 bytes, needs 186944");
}

TEST(PageMapping, EmptyPageIsRefused) {
  testing::FakePage page({}, {.bytes = 0});
  ExpectRejected(MapError(page.fd()), Rejection::kPageShort, "has 0 bytes");
}

TEST(PageMapping, FileOnDiskIsRefused) {
  std::string path = ::testing::TempDir() + "/page_XXXXXX";
  UniqueFd file(mkstemp(path.data()));
  ASSERT_TRUE(file);
  unlink(path.c_str());
  ASSERT_EQ(ftruncate(file.get(), sizeof(page::StatsPage)), 0);
  EXPECT_EQ(RejectionOf(MapError(file.get())), Rejection::kPageNotMemfd);
}

TEST(PageMapping, WhatIsNoFileInMemoryIsRefused) {
  int ends[2], peers[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, peers), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]), peer(peers[0]), other_peer(peers[1]);
  const UniqueFd directory(open("/", O_RDONLY | O_DIRECTORY)), zero(open("/dev/zero", O_RDWR)), path(open("/", O_PATH));
  for (const int fd : {read_end.get(), write_end.get(), peer.get(), directory.get(), zero.get(), path.get()}) {
    ExpectRejected(MapError(fd), Rejection::kPageNotMemfd, "has no seals");
  }
}

TEST(PageMapping, FileOnTmpfsIsRefused) {
  std::string path = "/dev/shm/page_XXXXXX";
  UniqueFd file(mkstemp(path.data()));
  if (!file) GTEST_SKIP() << "no tmpfs in /dev/shm";
  unlink(path.c_str());
  ASSERT_EQ(ftruncate(file.get(), sizeof(page::StatsPage)), 0);
  const Rejection reason = RejectionOf(MapError(file.get()));
  EXPECT_TRUE(reason == Rejection::kPageUnsealed || reason == Rejection::kPageNotMemfd) << Name(reason);
}

TEST(PageMapping, HugePagesAreRefused) {
  UniqueFd file(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!file || ftruncate(file.get(), 2 << 20) != 0) GTEST_SKIP() << "no huge pages in this kernel";
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  ExpectRejected(MapError(file.get()), Rejection::kPageNotMemfd, "ordinary pages");
}

// The seals are what makes it impossible to cut the file under the mapping, whose next read would end the process.
TEST(PageMapping, MappedPageCannotBeTruncated) {
  testing::FakePage page({});
  const auto mapping = page.Map();
  EXPECT_EQ(ftruncate(page.fd(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(page.fd(), 1 << 20), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(mapping->page_untrusted()->header.magic.load(), page::kMagic);
}

// A hole may be punched into a sealed file; it reads as zeros.
TEST(PageMapping, HoleInTheFileReadsAsZeros) {
  testing::FakePage page({});
  const auto mapping = page.Map();
  ASSERT_EQ(fallocate(page.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof(page::StatsPage)), 0);
  EXPECT_EQ(mapping->page_untrusted()->header.magic.load(), 0u);
}

}  // namespace
}  // namespace gradgate
