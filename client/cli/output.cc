#include "client/cli/output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace gradgate::cli {

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

}  // namespace gradgate::cli
