// One trainer's connection: receives packets with the descriptors attached to them, and sends answers, never blocking.
//
// Thread class: one thread (the listener's loop).

#ifndef GRADGATE_DAEMON_NODE_SHIM_CLIENT_H_
#define GRADGATE_DAEMON_NODE_SHIM_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "daemon/node/job_entry.h"
#include "daemon/node/unique_fd.h"
#include "proto/link/frames.h"

namespace gradgate {

// What one receive brought.
struct Packet {
  enum class Kind { kNothing, kData, kEnd };
  Kind kind = Kind::kNothing;
  size_t bytes = 0;
  bool truncated = false;              // longer than a frame
  bool descriptors_truncated = false;  // this process may open no more; the kernel closed the rest
  std::vector<UniqueFd> descriptors;
  std::byte data[link::kMaxFrameBytes];

  absl::Span<const std::byte> view() const { return {data, bytes}; }
};

class ShimClient {
 public:
  ShimClient(UniqueFd socket, uint32_t user_id, int32_t process_id, absl::Time accepted)
      : socket_(std::move(socket)), user_id_(user_id), process_id_(process_id), accepted_(accepted) {}

  int fd() const { return socket_.get(); }
  uint32_t user_id() const { return user_id_; }       // told by the kernel
  int32_t process_id() const { return process_id_; }  // told by the kernel; 0: in no namespace of this daemon's
  absl::Time accepted() const { return accepted_; }

  // The registry's number for it, once it said Hello.
  std::optional<uint64_t> connection() const { return connection_; }
  void set_connection(uint64_t connection) { connection_ = connection; }

  // Whose rank it is, once it said Hello.
  const JobKey& job() const { return job_; }
  const std::string& launch_id() const { return launch_id_; }  // empty: not known
  void set_job(JobKey job, std::string launch_id) {
    job_ = std::move(job);
    launch_id_ = std::move(launch_id);
  }
  // The last policy that was sent on this connection; 0: none.
  uint64_t offered_version() const { return offered_version_; }

  // Gives the socket away; nothing else may be called then.
  UniqueFd ReleaseSocket() { return std::move(socket_); }

  // Takes one packet; the one before must have no descriptors left. An error of the socket other than "nothing there" reads as
  // kEnd, after what was sent before it.
  void Receive(Packet& packet);

  // Best effort: a client that does not read gets no answer.
  void SendWelcome(uint32_t slot, absl::string_view daemon_version) const;
  void SendReject(link::RejectReason reason, absl::string_view message) const;
  // False if it does not fit the socket now: to be tried again.
  bool SendPolicy(link::PolicyFrame policy);

 private:
  UniqueFd socket_;
  const uint32_t user_id_;
  const int32_t process_id_;
  const absl::Time accepted_;
  std::optional<uint64_t> connection_;
  JobKey job_;
  std::string launch_id_;
  uint64_t offered_version_ = 0;
};

// Tells a socket that is not a client yet why it will not be one.
void SendRejectTo(int fd, link::RejectReason reason, absl::string_view message);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_SHIM_CLIENT_H_
