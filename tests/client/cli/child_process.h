// Runs a program and takes what it writes. Waits end at a deadline, with the child killed and the test failed.

#ifndef GRADGATE_TESTS_CLIENT_CLI_CHILD_PROCESS_H_
#define GRADGATE_TESTS_CLIENT_CLI_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace gradgate::testing {

class ChildProcess {
 public:
  // `environment`: NAME=value, the whole of it.
  ChildProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment);

  // Kills what still runs.
  ~ChildProcess();

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Until standard output contains `text`. False if it ended before.
  bool ReadUntil(const std::string& text);

  void Signal(int number);

  // Nobody reads its standard output any more.
  void CloseOutput();

  // Reads on to the end. The exit status; or 128 + the signal that killed it.
  int Wait();

  const std::string& output() const { return output_; }
  const std::string& error() const { return error_; }

 private:
  bool ReadSome();  // false at the end of both

  pid_t pid_ = -1;
  int output_fd_ = -1;
  int error_fd_ = -1;
  std::string output_;
  std::string error_;
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_CLIENT_CLI_CHILD_PROCESS_H_
