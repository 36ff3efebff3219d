// What the listener offers to trainers, from whoever knows policies. The arrow points here, so that the listener sees no store.
//
// Thread class: any thread; neither call blocks.

#ifndef GRADGATE_DAEMON_NODE_POLICY_SOURCE_H_
#define GRADGATE_DAEMON_NODE_POLICY_SOURCE_H_

#include <cstdint>
#include <string>

#include "daemon/node/job_entry.h"
#include "proto/link/frames.h"

namespace gradgate {

class PolicySource {
 public:
  virtual ~PolicySource() = default;

  // Grows whenever some job's frame may be another.
  virtual uint64_t generation() const = 0;

  // What ranks of this job are to be offered; version 0: nothing. `launch_id`: as their pages tell it, empty if not known.
  virtual link::PolicyFrame FrameFor(const JobKey& job, const std::string& launch_id) const = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_POLICY_SOURCE_H_
