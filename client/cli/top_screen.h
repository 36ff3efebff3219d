// A terminal that is drawn on line by line, and put back as it was.
//
//   away --Enter()--> drawing --Leave(), destructor--> away
//
// While drawing: the alternate screen, no cursor, no echo, keys at once; Ctrl-C and Ctrl-Z still make their signals. Never
// blocks: what the terminal does not take yet waits, and no new frame is begun before. One thread.

#ifndef GRADGATE_CLIENT_CLI_TOP_SCREEN_H_
#define GRADGATE_CLIENT_CLI_TOP_SCREEN_H_

#include <termios.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/cli/top_view.h"

namespace gradgate::cli {

class TopScreen {
 public:
  // The descriptors stay the caller's. `output_fd` is a terminal; where `input_fd` is none, there are no keys.
  TopScreen(int input_fd, int output_fd, bool colours);
  ~TopScreen();

  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  void Enter();

  // Waits for a terminal that takes nothing, but kLongestGoodbyeMs at most.
  void Leave();

  // Rows and columns now; 24 and 80 where the terminal does not tell.
  struct Size {
    size_t rows = 24, columns = 80;
  };
  Size size() const;

  // The whole screen from its top: what differs from the frame before is written. Nothing while pending().
  void Draw(const std::vector<TopLine>& lines);

  // The next Draw writes all of it: the size has changed.
  void Forget();

  // Something waits for Flush().
  bool pending() const { return !pending_.empty(); }
  void Flush();

  int fd() const { return fd_; }

  // The terminal is gone.
  bool closed() const { return closed_; }

 private:
  void Write(absl::string_view text);

  const int input_fd_, output_fd_;
  const bool colours_;
  int fd_;  // the same terminal, opened anew so that it alone does not block; output_fd_ where it cannot be
  bool drawing_ = false;
  bool closed_ = false;
  termios before_{};
  bool has_before_ = false;
  std::vector<TopLine> shown_;
  std::string pending_;
};

inline constexpr int kLongestGoodbyeMs = 500;

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TOP_SCREEN_H_
