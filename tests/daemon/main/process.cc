#include "tests/daemon/main/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace gradgate::testing {
namespace {

constexpr int kDeadlineMs = 20'000;

}  // namespace

Process::Process(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  output_ = UniqueFd(ends[0]);
  UniqueFd write_end(ends[1]);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(write_end.get(), STDOUT_FILENO);
    dup2(write_end.get(), STDERR_FILENO);
    for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
    execv(argv[0], argv.data());
    _exit(127);
  }
}

Process::~Process() {
  if (reaped_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Process::Fill() {
  pollfd readable{output_.get(), POLLIN, 0};
  if (poll(&readable, 1, kDeadlineMs) <= 0) return false;
  char bytes[4096];
  const ssize_t got = read(output_.get(), bytes, sizeof(bytes));
  if (got <= 0) return false;
  buffer_.append(bytes, got);
  return true;
}

std::string Process::ReadLine() {
  size_t end;
  while ((end = buffer_.find('\n')) == std::string::npos) {
    if (!Fill()) return "";
  }
  const std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

std::string Process::ReadAll() {
  while (Fill()) {
  }
  return std::exchange(buffer_, "");
}

void Process::Signal(int signal_number) { kill(pid_, signal_number); }

int Process::Wait() {
  UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  pollfd ended{process.get(), POLLIN, 0};
  if (poll(&ended, 1, kDeadlineMs) <= 0) return -1;
  int status;
  if (waitpid(pid_, &status, 0) != pid_) return -1;
  reaped_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace gradgate::testing
