#include "daemon/node/descriptor_bin.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <deque>
#include <list>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "daemon/node/mutex.h"

namespace gradgate {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience(1);

int NudgeSignal() { return SIGRTMIN; }

// A handler that does nothing, so that the signal interrupts and does no more.
void InstallNudgeSignal() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(NudgeSignal(), &action, nullptr);  // without SA_RESTART
}

// Files in the kernel's own memory have seals, and nothing to wait for.
bool ClosesAtOnce(int fd) { return fcntl(fd, F_GET_SEALS) >= 0; }

// Whether a connection holds packets that nobody took, which may have descriptors in them. None come after this.
bool HoldsPackets(int connection) {
  shutdown(connection, SHUT_RD);
  // A peer that closed with our answer unread is reported once, ahead of the packets.
  for (int attempt = 0; attempt < 2; ++attempt) {
    char byte;
    const ssize_t got = recv(connection, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))) return false;
    if (got > 0) return true;
  }
  return true;
}

}  // namespace

struct DescriptorBin::Shared {
  struct Worker {
    pthread_t thread;
    SteadyClock::time_point since;  // of the close that it is at
  };

  // What one thread does: closes until nothing waits.
  void Work();
  // One thread for all that waits, and one more for each that is held up.
  static void Staff(const std::shared_ptr<Shared>& shared) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared->mutex);

  Mutex mutex;
  std::deque<UniqueFd> waiting ABSL_GUARDED_BY(mutex);
  std::list<Worker> workers ABSL_GUARDED_BY(mutex);  // each at a close
  size_t thread_count ABSL_GUARDED_BY(mutex) = 0;
};

void DescriptorBin::Shared::Work() {
  while (true) {
    UniqueFd fd;
    std::list<Worker>::iterator self;
    {
      MutexLock lock(&mutex);
      if (waiting.empty()) {
        --thread_count;
        return;
      }
      fd = std::move(waiting.front());
      waiting.pop_front();
      self = workers.insert(workers.end(), Worker{pthread_self(), SteadyClock::now()});
    }
    fd.reset();
    MutexLock lock(&mutex);
    workers.erase(self);
  }
}

void DescriptorBin::Shared::Staff(const std::shared_ptr<Shared>& shared) {
  const bool all_held_up = shared->thread_count == shared->workers.size();
  if (shared->waiting.empty() || !all_held_up || shared->thread_count >= kMaxThreads) return;
  try {
    std::thread([shared] { shared->Work(); }).detach();
    ++shared->thread_count;
  } catch (const std::system_error&) {
    // No thread to be had: tried again at the next Nudge.
  }
}

DescriptorBin::DescriptorBin() : shared_(std::make_shared<Shared>()) {
  static const bool installed = (InstallNudgeSignal(), true);
  (void)installed;
}

DescriptorBin::~DescriptorBin() = default;

void DescriptorBin::Take(UniqueFd fd) {
  if (fd && !ClosesAtOnce(fd.get())) TakeSlow(std::move(fd));
}

void DescriptorBin::TakeConnection(UniqueFd connection) {
  if (connection && HoldsPackets(connection.get())) TakeSlow(std::move(connection));
}

void DescriptorBin::TakeSlow(UniqueFd fd) {
  MutexLock lock(&shared_->mutex);
  shared_->waiting.push_back(std::move(fd));
  Shared::Staff(shared_);
}

size_t DescriptorBin::waiting_count() const {
  MutexLock lock(&shared_->mutex);
  return shared_->waiting.size() + shared_->workers.size();
}

void DescriptorBin::Nudge() {
  MutexLock lock(&shared_->mutex);
  const auto late = SteadyClock::now() - kPatience;
  for (const Shared::Worker& worker : shared_->workers) {
    if (worker.since < late) pthread_kill(worker.thread, NudgeSignal());
  }
  Shared::Staff(shared_);
}

}  // namespace gradgate
