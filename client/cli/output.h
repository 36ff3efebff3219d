// Writes text to a descriptor, and remembers when its reader went away.
//
//   open --(EPIPE)--> closed      the reader has seen enough: no error, nothing more is written
//   open --(other)--> failed
//
// The process must ignore SIGPIPE. Blocks while the reader is slow. One thread.

#ifndef GRADGATE_CLIENT_CLI_OUTPUT_H_
#define GRADGATE_CLIENT_CLI_OUTPUT_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gradgate::cli {

class Output {
 public:
  // `fd` stays the caller's.
  explicit Output(int fd) : fd_(fd) {}

  // Unbuffered. False once closed or failed.
  bool Write(absl::string_view text);

  // Columns of the terminal that it is; 0 where it is none, so that programs and files get whole lines.
  size_t columns() const;

  // OK while open and when closed; else why it failed.
  const absl::Status& status() const { return status_; }

 private:
  const int fd_;
  bool open_ = true;
  absl::Status status_;
};

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_OUTPUT_H_
