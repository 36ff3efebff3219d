// Owns one file descriptor and closes it.
//
// Thread class: one thread per object. A moved-from object is empty.

#ifndef GRADGATE_DAEMON_NODE_UNIQUE_FD_H_
#define GRADGATE_DAEMON_NODE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace gradgate {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

  // The caller owns it now.
  int Release() { return std::exchange(fd_, -1); }

  void reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_UNIQUE_FD_H_
