// Turns Ctrl-C and SIGTERM into the cancellation of a call.
//
// Made on the main thread before any other thread is, since it blocks both signals for all threads made later; its own thread
// takes them. After the first signal both have their default effect again, so that a second one kills.

#ifndef GRADGATE_CLIENT_CLI_INTERRUPTER_H_
#define GRADGATE_CLIENT_CLI_INTERRUPTER_H_

#include <csignal>
#include <thread>

#include "client/cancellation.h"

namespace gradgate::cli {

class Interrupter {
 public:
  // `cancellation` must outlive this.
  explicit Interrupter(client::Cancellation* cancellation);

  // Lets its thread go, and leaves the signals blocked: the process is about to end.
  ~Interrupter();

  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;

 private:
  void Run();

  client::Cancellation* const cancellation_;
  sigset_t signals_;
  int stop_fd_;
  std::thread thread_;
};

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_INTERRUPTER_H_
