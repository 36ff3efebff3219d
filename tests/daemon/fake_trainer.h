// A trainer's end of shim.sock, played by a test. Every wait has a deadline.
//
// Thread class: one thread per object.

#ifndef GRADGATE_TESTS_DAEMON_FAKE_TRAINER_H_
#define GRADGATE_TESTS_DAEMON_FAKE_TRAINER_H_

#include <optional>
#include <string>
#include <vector>

#include "daemon/node/unique_fd.h"
#include "proto/link/frames.h"

namespace gradgate::testing {

class FakeTrainer {
 public:
  // Connects; connected() tells whether it worked.
  explicit FakeTrainer(const std::string& socket_path);

  bool connected() const { return connected_; }
  int fd() const { return socket_.get(); }

  // Sends any bytes with any descriptors. False when the socket does not take them.
  bool Send(const void* bytes, size_t size, const std::vector<int>& descriptors = {});
  bool SendHello(int page_fd);
  bool SendGoodbye(bool failed = false);

  // A frame from the daemon, or the end of the connection, or nothing until the deadline.
  struct Answer {
    enum class Kind { kWelcome, kReject, kPolicy, kEnd, kTimeout, kOther };
    Kind kind = Kind::kOther;
    uint32_t slot = 0;
    link::RejectReason reason = link::RejectReason::kUnspecified;
    std::string message;
    link::PolicyFrame policy{};
  };
  Answer Receive();

  // As a kill would.
  void Disconnect() { socket_.reset(); }

 private:
  UniqueFd socket_;
  bool connected_ = false;
};

link::HelloFrame MakeHello();

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_FAKE_TRAINER_H_
