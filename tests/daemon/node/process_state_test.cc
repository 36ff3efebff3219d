#include "daemon/node/process_state.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace gradgate {
namespace {

TEST(ProcessState, StandsBehindANameThatMayHoldAnything) {
  EXPECT_EQ(ParseProcessState("12 (python3) S 1 12"), "S");
  EXPECT_EQ(ParseProcessState("12 (a) R (b) T 1 12"), "T");
  for (const char* wrong : {"", "12", "12 (python3)", "12 (python3) ", "12 (python3)S 1", "12 (python3) 7 1"}) {
    EXPECT_EQ(ParseProcessState(wrong), "") << wrong;
  }
}

TEST(ProcessState, OfAChildThatIsStopped) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
  EXPECT_EQ(ReadProcessState(child), "T");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(ReadProcessState(child), "");
}

TEST(ProcessState, OfNobodyIsNotKnown) {
  EXPECT_EQ(ReadProcessState(0), "");
  EXPECT_EQ(ReadProcessState(-1), "");
}

}  // namespace
}  // namespace gradgate
