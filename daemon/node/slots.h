// Hands out the smallest free number, so that slots stay small and their series few.
//
// Thread class: the caller's lock.

#ifndef GRADGATE_DAEMON_NODE_SLOTS_H_
#define GRADGATE_DAEMON_NODE_SLOTS_H_

#include <cstdint>
#include <set>

namespace gradgate {

class SlotPool {
 public:
  uint32_t Take() {
    if (free_.empty()) return next_++;
    return free_.extract(free_.begin()).value();
  }
  // `slot` was taken and is not free.
  void Release(uint32_t slot) { free_.insert(slot); }

 private:
  std::set<uint32_t> free_;
  uint32_t next_ = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_SLOTS_H_
