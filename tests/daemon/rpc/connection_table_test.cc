// How many connections there may be, and whose each is.

#include "daemon/rpc/connection_table.h"

#include <fcntl.h>
#include <unistd.h>

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ConnectionTableTest : public ::testing::Test {
 protected:
  absl::Status Admit(int fd, uint32_t uid) {
    open_[fd] = next_inode_++;
    return table_.Admit(fd, {"uid " + std::to_string(uid), uid});
  }
  void Close(int fd) { open_.erase(fd); }

  std::map<int, ino_t> open_;
  ino_t next_inode_ = 100;
  ConnectionTable table_{8, [this](int fd) { return open_.count(fd) != 0 ? open_[fd] : 0; }};
};

TEST_F(ConnectionTableTest, OnePeerHasThreeQuarters) {
  for (int fd = 0; fd < 6; ++fd) EXPECT_TRUE(Admit(fd, 1000).ok()) << fd;
  const absl::Status refused = Admit(6, 1000);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("uid 1000"), HasSubstr("6 of 6"), HasSubstr("--max_connections")));
  EXPECT_TRUE(Admit(7, 1001).ok());
  EXPECT_TRUE(Admit(8, 1002).ok());
  EXPECT_FALSE(Admit(9, 1003).ok()) << "all are taken";
  EXPECT_EQ(table_.refused_count(), 2u);
  EXPECT_EQ(table_.Count(), 8u);
}

TEST_F(ConnectionTableTest, ClosedOnesMakeRoom) {
  for (int fd = 0; fd < 6; ++fd) ASSERT_TRUE(Admit(fd, 1000).ok());
  Close(3);
  EXPECT_TRUE(Admit(20, 1000).ok());
  EXPECT_FALSE(Admit(21, 1000).ok());
  for (int fd = 0; fd < 6; ++fd) Close(fd);
  EXPECT_EQ(table_.Count(), 1u);
}

TEST_F(ConnectionTableTest, NumberThatIsUsedAgainIsTheNewOnes) {
  ASSERT_TRUE(Admit(5, 1000).ok());
  EXPECT_EQ(table_.UidOf("fd:5"), 1000u);
  ASSERT_TRUE(Admit(5, 1001).ok());
  EXPECT_EQ(table_.UidOf("fd:5"), 1001u);
  EXPECT_EQ(table_.Count(), 1u);
}

TEST_F(ConnectionTableTest, ClosedOneIsNobodys) {
  ASSERT_TRUE(Admit(5, 0).ok());
  Close(5);
  EXPECT_EQ(table_.UidOf("fd:5"), std::nullopt);
  open_[5] = 7;  // another file under its number, which was not admitted
  EXPECT_EQ(table_.UidOf("fd:5"), std::nullopt);
}

TEST_F(ConnectionTableTest, OnlyNamesOfDescriptorsAreKnown) {
  ASSERT_TRUE(Admit(5, 1000).ok());
  for (const char* peer : {"", "fd:", "fd:6", "fd:5x", "5", "unix:", "ipv4:127.0.0.1:5", "fd:-1"}) {
    EXPECT_EQ(table_.UidOf(peer), std::nullopt) << peer;
  }
}

TEST_F(ConnectionTableTest, ShortLivedOnesAreForgotten) {
  for (int fd = 0; fd < 10000; ++fd) {
    ASSERT_TRUE(Admit(fd, 1000).ok());
    Close(fd);
  }
  EXPECT_EQ(table_.Count(), 0u);
}

TEST(ConnectionTable, LooksAtRealDescriptors) {
  const int fd = open("/dev/null", O_RDONLY);
  EXPECT_NE(ConnectionTable::FileInode(fd), 0u);
  close(fd);
  EXPECT_EQ(ConnectionTable::FileInode(fd), 0u);
}

}  // namespace
}  // namespace gradgate
