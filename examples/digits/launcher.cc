#include "examples/digits/launcher.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace digits {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void RunChild(pid_t parent, const sigset_t& mask, const std::function<int()>& run) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  std::exit(run());
}

// Takes in those that have ended. False if any of them failed.
bool Reap(std::map<pid_t, uint32_t>* children) {
  bool ok = true;
  int status = 0;
  for (pid_t pid; !children->empty() && (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto child = children->find(pid);
    if (child == children->end()) continue;
    if (WIFSIGNALED(status)) {
      std::fprintf(stderr, "digits: rank %u was killed by signal %d (%s)\n", child->second, WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
    }
    ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    children->erase(child);
  }
  return ok;
}

void SignalAll(const std::map<pid_t, uint32_t>& children, int signal) {
  for (const auto& [pid, rank] : children) kill(pid, signal);
}

}  // namespace

int Launch(uint32_t ranks, std::chrono::seconds grace, const std::function<int(uint32_t rank)>& run) {
  // Signals are taken with sigtimedwait, so that nothing here polls.
  sigset_t awaited, before;
  sigemptyset(&awaited);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&awaited, signal);
  sigprocmask(SIG_BLOCK, &awaited, &before);

  const pid_t parent = getpid();
  std::map<pid_t, uint32_t> children;
  bool ok = true;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) RunChild(parent, before, [&] { return run(rank); });
    if (pid < 0) {
      std::fprintf(stderr, "digits: cannot fork rank %u: %s\n", rank, std::strerror(errno));
      ok = false;
      break;
    }
    children[pid] = rank;
  }

  int next_signal = SIGTERM;  // to the others, once one has failed and their grace is over
  auto patience = Clock::now() + grace;
  while (!children.empty()) {
    timespec wait = {3600, 0};
    if (!ok) {
      const auto left = std::chrono::nanoseconds(std::max(patience - Clock::now(), Clock::duration::zero())).count();
      wait = {left / 1'000'000'000, left % 1'000'000'000};
    }
    const int signal = sigtimedwait(&awaited, nullptr, &wait);
    if (signal == SIGINT || signal == SIGTERM) {
      SignalAll(children, signal);
      patience = Clock::now() + std::chrono::seconds(5);
      next_signal = SIGKILL;
      ok = false;
    }
    const bool first_failure = !Reap(&children) && ok;
    if (first_failure) {
      ok = false;
      patience = Clock::now() + grace;
    } else if (!ok && Clock::now() >= patience) {
      SignalAll(children, next_signal);
      next_signal = SIGKILL;
      patience = Clock::now() + std::chrono::seconds(5);
    }
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return ok ? 0 : 1;
}

}  // namespace digits
