// Closes descriptors that strangers sent, where close(2) may wait as long as the stranger likes: a socket that lingers over
// unsent bytes, a terminal that drains, a file whose file system is the stranger's own program. The loop must not.
//
//   Take() --closes at once--> gone
//          --might wait------> waiting --a thread of the bin--> gone
//
// Threads exist only while something waits. One that a close holds up for a second is interrupted at each Nudge().
//
// Thread class: any thread. Destruction waits for nothing; what still waits is closed by threads that outlive this object.

#ifndef GRADGATE_DAEMON_NODE_DESCRIPTOR_BIN_H_
#define GRADGATE_DAEMON_NODE_DESCRIPTOR_BIN_H_

#include <cstddef>
#include <memory>

#include "daemon/node/unique_fd.h"

namespace gradgate {

class DescriptorBin {
 public:
  static constexpr size_t kMaxThreads = 16;
  static constexpr size_t kFullCount = 512;

  DescriptorBin();
  ~DescriptorBin();
  DescriptorBin(const DescriptorBin&) = delete;
  DescriptorBin& operator=(const DescriptorBin&) = delete;

  // Takes a descriptor of any kind. Never waits. An empty one is fine.
  void Take(UniqueFd fd);

  // Takes a connection of ours on shim.sock; what its peer still has under way in it may wait too.
  void TakeConnection(UniqueFd connection);

  // Descriptors not closed yet.
  size_t waiting_count() const;
  // No more should be received for now.
  bool full() const { return waiting_count() >= kFullCount; }

  // To be called some ten times a second: interrupts closes that have taken longer than a second.
  void Nudge();

 private:
  struct Shared;

  void TakeSlow(UniqueFd fd);

  std::shared_ptr<Shared> shared_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_DESCRIPTOR_BIN_H_
