#include "shim/capi/launch_id.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

namespace gradgate {
namespace {

// As torchrun has it in the first attempt of a launch.
const LaunchSigns kTorchrun = {.given = "",
                               .run_id = "none",
                               .error_file = "/tmp/torchelastic_x/none_y/attempt_0/1/error.json",
                               .parent = "boot pid:[4026531836] 700 1234",
                               .rank = "0"};

TEST(LaunchId, ARestartByTorchrunHasTheSame) {
  LaunchSigns again = kTorchrun;
  again.error_file = "/tmp/torchelastic_x/none_y/attempt_1/0/error.json";
  EXPECT_EQ(MakeLaunchId(again, 0), MakeLaunchId(kTorchrun, 0));
  EXPECT_NE(MakeLaunchId(kTorchrun, 0), LaunchId{});
}

TEST(LaunchId, WhateverTellsLaunchesGroupsAndMembershipsApart) {
  std::set<LaunchId> seen = {MakeLaunchId(kTorchrun, 0), MakeLaunchId(kTorchrun, 1)};
  const auto add = [&](std::string LaunchSigns::*sign, const char* value) {
    LaunchSigns other = kTorchrun;
    other.*sign = value;
    seen.insert(MakeLaunchId(other, 0));
  };
  add(&LaunchSigns::run_id, "other");
  add(&LaunchSigns::error_file, "/tmp/torchelastic_x/none_z/attempt_0/1/error.json");
  add(&LaunchSigns::parent, "boot pid:[4026531836] 700 1235");
  add(&LaunchSigns::rank, "2");
  add(&LaunchSigns::given, "mine");
  add(&LaunchSigns::given, "yours");
  EXPECT_EQ(seen.size(), 8u);
}

TEST(LaunchId, WithoutOneOfTorchrunsSignsThereIsNone) {
  for (std::string LaunchSigns::*sign : {&LaunchSigns::run_id, &LaunchSigns::error_file, &LaunchSigns::parent}) {
    LaunchSigns less = kTorchrun;
    less.*sign = "";
    EXPECT_EQ(MakeLaunchId(less, 0), LaunchId{});
  }
  LaunchSigns own_file = kTorchrun;
  own_file.error_file = "/tmp/errors.json";
  EXPECT_EQ(MakeLaunchId(own_file, 0), LaunchId{}) << "the same for all launches";
  EXPECT_EQ(MakeLaunchId({}, 0), LaunchId{});
}

TEST(LaunchId, OneThatIsGivenNeedsNothingElse) {
  const LaunchId given = MakeLaunchId({.given = "slurm.17", .run_id = "", .error_file = "", .parent = "a", .rank = "0"}, 0);
  EXPECT_NE(given, LaunchId{});
  EXPECT_EQ(MakeLaunchId({.given = "slurm.17", .run_id = "x", .error_file = "", .parent = "b", .rank = "0"}, 0), given);
}

TEST(LaunchId, TheParentIsKnownByMoreThanItsPid) {
  const LaunchSigns own = ReadLaunchSigns();
  EXPECT_EQ(ReadLaunchSigns().parent, own.parent);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string parent = ReadLaunchSigns().parent;
    _exit(write(ends[1], parent.data(), parent.size()) == static_cast<ssize_t>(parent.size()) ? 0 : 1);
  }
  char text[256] = {};
  ASSERT_GT(read(ends[0], text, sizeof(text) - 1), 0);
  int status;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const std::string of_child = text;
  EXPECT_NE(of_child, own.parent);
  EXPECT_NE(of_child.find(" " + std::to_string(getpid()) + " "), std::string::npos) << of_child;
  EXPECT_NE(of_child.find("pid:["), std::string::npos) << of_child;
  const std::string start = of_child.substr(of_child.rfind(' ') + 1);
  EXPECT_EQ(start.find_first_not_of("0123456789"), std::string::npos) << of_child;
  EXPECT_GT(std::strtoull(start.c_str(), nullptr, 10), 100u) << "ticks since boot: " << of_child;
}

}  // namespace
}  // namespace gradgate
