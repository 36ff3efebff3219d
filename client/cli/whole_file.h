// Writes a file so that others see the former one or the whole new one. Any thread.

#ifndef GRADGATE_CLIENT_CLI_WHOLE_FILE_H_
#define GRADGATE_CLIENT_CLI_WHOLE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gradgate::cli {

// Where `path` is a link, what it points to is replaced; where it is there and no file, as a pipe or a device, it is written
// to. A new file has the mode that the process's mask leaves of 0666; a former one's mode stays. INTERNAL: it cannot be
// written; the message has the path and why, and nothing is left behind.
absl::Status WriteWholeFile(const std::string& path, absl::string_view content);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_WHOLE_FILE_H_
