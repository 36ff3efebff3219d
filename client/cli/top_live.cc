#include "client/cli/top_live.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/cli/top_keys.h"
#include "client/cli/top_model.h"
#include "client/cli/top_screen.h"
#include "client/cli/top_view.h"
#include "client/connection.h"

namespace gradgate::cli {
namespace {

constexpr int kTickMs = 1000;  // for how long nothing was answered is shown as it grows

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Blocks them for the threads that are made later.
int SignalDescriptor() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

class Live {
 public:
  Live(int signal_fd, const std::shared_ptr<const client::Connection>& connection, const TopQuestion& question,
       absl::Duration interval, const TopLook& look)
      : signal_fd_(signal_fd),
        ready_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        has_keys_(isatty(STDIN_FILENO) != 0),
        screen_(STDIN_FILENO, STDOUT_FILENO, look.colours),
        source_(connection, question, interval, ready_.get()) {
    frame_.address = connection->target().address;
    frame_.interval = interval;
    frame_.charset = look.charset;
  }

  absl::Status Run() {
    while (!over_) {
      Wait();
      if (over_ || !first_error_.ok()) break;
      Show();
    }
    screen_.Leave();
    return first_error_;
  }

 private:
  void Wait() {
    std::array<pollfd, 4> waits = {{{signal_fd_, POLLIN, 0},
                                    {ready_.get(), POLLIN, 0},
                                    {screen_.pending() ? screen_.fd() : -1, POLLOUT, 0},
                                    {has_keys_ ? STDIN_FILENO : -1, POLLIN, 0}}};
    if (poll(waits.data(), waits.size(), kTickMs) < 0) return;
    if (waits[0].revents != 0) TakeSignals();
    if (waits[1].revents != 0) TakeRound();
    if (waits[2].revents != 0) screen_.Flush();
    if (waits[3].revents != 0) TakeKeys();
    over_ = over_ || screen_.closed();
  }

  void TakeSignals() {
    signalfd_siginfo signal;
    while (read(signal_fd_, &signal, sizeof(signal)) == sizeof(signal)) {
      if (signal.ssi_signo == SIGWINCH) {
        screen_.Forget();
      } else if (signal.ssi_signo == SIGTSTP) {
        const bool drawing = answered_;
        screen_.Leave();
        raise(SIGSTOP);
        if (drawing) screen_.Enter();
      } else {
        over_ = true;
      }
    }
  }

  void TakeRound() {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(ready_.get(), &count, sizeof(count));
    std::optional<TopRound> round = source_.Take();
    if (!round.has_value()) return;
    if (!answered_ && !round->status.ok()) {
      first_error_ = round->status;
      return;
    }
    if (!answered_) screen_.Enter();
    answered_ = true;
    if (place_.paused) return;
    model_.Add(*std::move(round));
  }

  void TakeKeys() {
    std::array<char, 256> bytes;
    const ssize_t got = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) over_ = true;  // the terminal is gone
    if (got <= 0) return;
    for (const TopKeyPress key : keys_.Take({bytes.data(), static_cast<size_t>(got)})) Press(key);
  }

  void Press(TopKeyPress key) {
    const size_t page = TopPageRanks(frame_);
    switch (key) {
      case TopKeyPress::kQuit:
        over_ = true;
        break;
      case TopKeyPress::kUp:
        MoveSelection(-1);
        break;
      case TopKeyPress::kDown:
        MoveSelection(1);
        break;
      case TopKeyPress::kPageUp:
        place_.first_rank -= std::min(place_.first_rank, page);
        break;
      case TopKeyPress::kPageDown:
        place_.first_rank += page;
        break;
      case TopKeyPress::kSort:
        place_.sort = static_cast<TopSort>((static_cast<int>(place_.sort) + 1) % kTopSortCount);
        place_.first_rank = 0;
        break;
      case TopKeyPress::kPause:
        place_.paused = !place_.paused;
        break;
    }
  }

  void MoveSelection(int by) {
    const std::vector<TopJob>& jobs = model_.jobs();
    const TopJob* const selected = model_.Selected(place_.selected);
    if (selected == nullptr) return;
    const auto at = static_cast<int>(selected - jobs.data()) + by;
    place_.selected = jobs[static_cast<size_t>(std::clamp(at, 0, static_cast<int>(jobs.size()) - 1))].key;
    place_.first_rank = 0;
    source_.Select(place_.selected, true);
  }

  void Show() {
    if (!answered_ || screen_.pending()) return;
    const TopScreen::Size size = screen_.size();
    frame_.rows = size.rows;
    frame_.columns = size.columns;
    frame_.now = absl::Now();
    screen_.Draw(TopView(model_, frame_, &place_));
    source_.Select(place_.selected, false);
  }

  const int signal_fd_;
  const Descriptor ready_;
  const bool has_keys_;
  TopScreen screen_;
  TopFrame frame_;
  TopPlace place_;
  TopModel model_;
  TopKeys keys_;
  bool answered_ = false;
  bool over_ = false;
  absl::Status first_error_;
  TopSource source_;  // ended first
};

}  // namespace

absl::Status RunTopLive(const client::ClientOptions& options, const TopQuestion& question, absl::Duration interval,
                        const TopLook& look) {
  const Descriptor signals(SignalDescriptor());  // before gRPC has threads
  const auto connection = client::Connection::Create(options);
  if (!connection.ok()) return connection.status();
  Live live(signals.get(), *connection, question, interval, look);
  return live.Run();
}

}  // namespace gradgate::cli
