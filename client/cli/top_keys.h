// What a person typed, from the bytes of a terminal. One thread per object.

#ifndef GRADGATE_CLIENT_CLI_TOP_KEYS_H_
#define GRADGATE_CLIENT_CLI_TOP_KEYS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gradgate::cli {

enum class TopKeyPress { kQuit, kUp, kDown, kPageUp, kPageDown, kSort, kPause };

class TopKeys {
 public:
  // The keys that end in `bytes`; those that mean nothing are left out. The begin of an escape sequence waits for its end.
  std::vector<TopKeyPress> Take(absl::string_view bytes);

 private:
  std::string sequence_;  // from its escape on; empty: outside
};

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TOP_KEYS_H_
