#include "tests/client/cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "gtest/gtest.h"

namespace gradgate::testing {
namespace {

constexpr int kLongestSilenceMs = 30000;

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

void Append(int* fd, std::string* text) {
  char buffer[4096];
  const ssize_t got = read(*fd, buffer, sizeof(buffer));
  if (got > 0) {
    text->append(buffer, got);
  } else {
    close(*fd);
    *fd = -1;
  }
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  int output[2], error[2];
  EXPECT_EQ(pipe2(output, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(error, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error[1], STDERR_FILENO);
  posix_spawnattr_t attributes;  // SIGPIPE as a shell leaves it, whatever this process does with it
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  EXPECT_EQ(
      posix_spawnp(&pid_, command[0].c_str(), &actions, &attributes, Pointers(command).data(), Pointers(environment).data()), 0)
      << command[0];
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(output[1]);
  close(error[1]);
  output_fd_ = output[0];
  error_fd_ = error[0];
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (output_fd_ >= 0) close(output_fd_);
  if (error_fd_ >= 0) close(error_fd_);
}

bool ChildProcess::ReadSome() {
  if (output_fd_ < 0 && error_fd_ < 0) return false;
  pollfd waits[] = {{output_fd_, POLLIN, 0}, {error_fd_, POLLIN, 0}};  // poll passes over negative ones
  if (poll(waits, 2, kLongestSilenceMs) <= 0) {
    ADD_FAILURE() << "nothing came for " << kLongestSilenceMs << " ms; so far: " << output_ << error_;
    Signal(SIGKILL);
    return false;
  }
  if (waits[0].revents != 0) Append(&output_fd_, &output_);
  if (waits[1].revents != 0) Append(&error_fd_, &error_);
  return true;
}

bool ChildProcess::ReadUntil(const std::string& text) {
  while (output_.find(text) == std::string::npos) {
    if (!ReadSome()) return false;
  }
  return true;
}

void ChildProcess::Signal(int number) { kill(pid_, number); }

void ChildProcess::CloseOutput() {
  close(output_fd_);
  output_fd_ = -1;
}

int ChildProcess::Wait() {
  while (ReadSome()) {
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace gradgate::testing
