#include "client/cli/interrupter.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>

namespace gradgate::cli {

Interrupter::Interrupter(client::Cancellation* cancellation) : cancellation_(cancellation), stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::thread([this] { Run(); });
}

Interrupter::~Interrupter() {
  const uint64_t one = 1;
  // An eventfd at 0 always takes a 1.
  [[maybe_unused]] const ssize_t written = write(stop_fd_, &one, sizeof(one));
  thread_.join();
  close(stop_fd_);
}

void Interrupter::Run() {
  const int signal_fd = signalfd(-1, &signals_, SFD_CLOEXEC);
  pollfd waits[] = {{signal_fd, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while (poll(waits, 2, -1) < 0) {  // interrupted
  }
  if ((waits[0].revents & POLLIN) != 0) {
    signalfd_siginfo first;
    [[maybe_unused]] const ssize_t got = read(signal_fd, &first, sizeof(first));
    cancellation_->Cancel();
    // A second signal reaches this thread, and ends the process.
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    while (poll(&waits[1], 1, -1) < 0) {
    }
  }
  close(signal_fd);
}

}  // namespace gradgate::cli
