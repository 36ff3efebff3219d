#include "examples/digits/hooks.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <thread>

namespace digits {

void Hooks::Started() const {
  if (!options_.fork_child) return;
  const pid_t pid = fork();
  if (pid == 0) {
    pollfd stdin_end = {STDIN_FILENO, 0, 0};
    poll(&stdin_end, 1, -1);
    _exit(0);
  }
  std::printf("rank %u forked %d\n", rank_, static_cast<int>(pid));
  std::fflush(stdout);
}

double Hooks::BeforeWindow(uint64_t window) const {
  const std::vector<uint64_t>& pauses = options_.pause_at_windows;
  if (rank_ != 0 || std::find(pauses.begin(), pauses.end(), window) == pauses.end()) return 0;
  const auto begin = std::chrono::steady_clock::now();
  std::printf("paused at window %" PRIu64 "\n", window);
  std::fflush(stdout);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') {
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Hooks::BeforeForward() const {
  if (options_.slow && options_.slow->rank == rank_)
    std::this_thread::sleep_for(std::chrono::milliseconds(options_.slow->window));
}

void Hooks::InMicroStep() const {
  if (options_.throttle_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(options_.throttle_ms));
}

void Hooks::InLastBackward(uint64_t window) const {
  if (At(options_.crash, window)) raise(SIGKILL);
}

}  // namespace digits
