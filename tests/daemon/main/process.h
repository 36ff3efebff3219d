// A child process whose output is read, with deadlines.
//
// Thread class: one thread per object. The destructor kills what still runs.

#ifndef GRADGATE_TESTS_DAEMON_MAIN_PROCESS_H_
#define GRADGATE_TESTS_DAEMON_MAIN_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "daemon/node/unique_fd.h"

namespace gradgate::testing {

class Process {
 public:
  // Runs `arguments` (the first is the file) with `environment` ("NAME=value") added; stdout and stderr go into one pipe.
  explicit Process(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The next line without its end; empty at the end of output or after 20 s.
  std::string ReadLine();
  // All output until it ends, or 20 s are over.
  std::string ReadAll();
  void Signal(int signal_number);
  // The exit code; 128 + signal if killed; −1 when it still runs after 20 s.
  int Wait();
  pid_t pid() const { return pid_; }

 private:
  bool Fill();  // reads more output; false at its end or at the deadline

  pid_t pid_;
  UniqueFd output_;
  std::string buffer_;
  bool reaped_ = false;
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_MAIN_PROCESS_H_
