#include "client/cli/output.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace gradgate::cli {
namespace {

constexpr size_t kMinColumns = 40;  // narrower ones break lines as they like

}  // namespace

bool Output::Write(absl::string_view text) {
  while (open_ && !text.empty()) {
    const ssize_t written = write(fd_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(written);
    } else if (errno == EAGAIN) {  // the descriptor was made non-blocking by who shares it
      pollfd waits = {fd_, POLLOUT, 0};
      poll(&waits, 1, -1);
    } else if (errno != EINTR) {
      open_ = false;
      if (errno != EPIPE) status_ = absl::DataLossError(absl::StrCat("cannot write the output: ", std::strerror(errno)));
    }
  }
  return open_;
}

size_t Output::columns() const {
  winsize size{};
  if (isatty(fd_) == 0 || ioctl(fd_, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 0;
  return std::max<size_t>(size.ws_col, kMinColumns);
}

}  // namespace gradgate::cli
