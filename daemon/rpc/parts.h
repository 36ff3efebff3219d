// What the nodes that were asked for their part of an answer gave. Plain values.

#ifndef GRADGATE_DAEMON_RPC_PARTS_H_
#define GRADGATE_DAEMON_RPC_PARTS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate {

// One node's part of an answer.
template <typename Response>
struct Part {
  size_t node;  // in Parts::nodes
  Response answer;
};

template <typename Response>
struct Parts {
  std::vector<Part<Response>> parts;  // the own one first, if any, then by node name; of one job, then never empty
  std::vector<v1::NodeAnswer> nodes;  // all that were asked, this daemon first
};

// Adds to what is odd about a node's answer.
inline void AddNote(const std::string& note, v1::NodeAnswer& node) {
  node.set_note(node.note().empty() ? note : absl::StrCat(node.note(), "; ", note));
}

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_PARTS_H_
