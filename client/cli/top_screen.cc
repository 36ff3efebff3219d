#include "client/cli/top_screen.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace gradgate::cli {
namespace {

// Alternate screen, no cursor, no wrapping at the right edge, all clear; and back.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr char kLeave[] = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr char kPlain[] = "\x1b[0m";
constexpr char kCancelSequence[] = "\x18";  // ends one that was cut off

// Bold and reversed everywhere; orange and blue differ for all kinds of sight, and are only added.
const char* Attributes(TopLine::Style style, bool colours) {
  switch (style) {
    case TopLine::Style::kPlain:
      return "";
    case TopLine::Style::kTitle:
      return "\x1b[7m";
    case TopLine::Style::kHead:
      return colours ? "\x1b[1;36m" : "\x1b[1m";
    case TopLine::Style::kSelected:
      return "\x1b[1;7m";
    case TopLine::Style::kTrouble:
      return colours ? "\x1b[1;33m" : "\x1b[1m";
    case TopLine::Style::kFaint:
      return "\x1b[2m";
  }
  return "";
}

int OpenAnew(int fd) {
  char name[256];
  if (ttyname_r(fd, name, sizeof(name)) != 0) return fd;
  const int own = open(name, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  return own < 0 ? fd : own;
}

}  // namespace

TopScreen::TopScreen(int input_fd, int output_fd, bool colours)
    : input_fd_(input_fd), output_fd_(output_fd), colours_(colours), fd_(OpenAnew(output_fd)) {}

TopScreen::~TopScreen() {
  Leave();
  if (fd_ != output_fd_) close(fd_);
}

void TopScreen::Enter() {
  if (drawing_) return;
  drawing_ = true;
  has_before_ = tcgetattr(input_fd_, &before_) == 0;
  if (has_before_) {
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    tcsetattr(input_fd_, TCSANOW, &keys);
  }
  Write(kEnter);
  Forget();
}

void TopScreen::Leave() {
  if (!drawing_) return;
  drawing_ = false;
  if (has_before_) tcsetattr(input_fd_, TCSANOW, &before_);
  const std::string cancel = pending_.empty() ? "" : kCancelSequence;
  pending_.clear();
  Write(absl::StrCat(cancel, kLeave));
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLongestGoodbyeMs);
  while (pending() && !closed_ && std::chrono::steady_clock::now() < end) {
    pollfd waits = {fd_, POLLOUT, 0};
    poll(&waits, 1, kLongestGoodbyeMs / 10);
    Flush();
  }
  pending_.clear();
}

TopScreen::Size TopScreen::size() const {
  winsize told{};
  Size size;
  if (ioctl(output_fd_, TIOCGWINSZ, &told) != 0) return size;
  if (told.ws_row > 0) size.rows = told.ws_row;
  if (told.ws_col > 0) size.columns = told.ws_col;
  return size;
}

void TopScreen::Forget() { shown_.clear(); }

void TopScreen::Draw(const std::vector<TopLine>& lines) {
  if (!drawing_ || pending()) return;
  std::string text = shown_.empty() ? "\x1b[0m\x1b[2J" : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i < shown_.size() && shown_[i] == lines[i]) continue;
    absl::StrAppend(&text, "\x1b[", i + 1, ";1H\x1b[2K", Attributes(lines[i].style, colours_), lines[i].text,
                    lines[i].style == TopLine::Style::kPlain ? "" : kPlain);
  }
  if (lines.size() < shown_.size()) absl::StrAppend(&text, "\x1b[", lines.size() + 1, ";1H\x1b[J");
  shown_ = lines;
  Write(text);
}

void TopScreen::Write(absl::string_view text) {
  absl::StrAppend(&pending_, text);
  Flush();
}

void TopScreen::Flush() {
  while (!pending_.empty() && !closed_) {
    const ssize_t written = write(fd_, pending_.data(), pending_.size());
    if (written >= 0) {
      pending_.erase(0, static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      closed_ = true;
      pending_.clear();
    }
  }
}

}  // namespace gradgate::cli
