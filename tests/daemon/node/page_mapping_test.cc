#include "daemon/node/page_mapping.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "daemon/node/rejection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using ::testing::HasSubstr;

absl::Status MapError(int fd) { return PageMapping::Map(UniqueFd(dup(fd))).status(); }

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

TEST(PageMapping, PipeAndDirectoryAreRefused) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  ExpectRejected(MapError(read_end.get()), Rejection::kPageNotMemfd, "not a regular file");
  UniqueFd directory(open("/", O_RDONLY | O_DIRECTORY));
  ExpectRejected(MapError(directory.get()), Rejection::kPageNotMemfd, "not a regular file");
}

}  // namespace
}  // namespace gradgate
