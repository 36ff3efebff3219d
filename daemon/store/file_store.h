// A store of this daemon alone that outlives it: memory with a file.
//
// Each change writes a whole new file beside the old one, and puts it in its place once it is on the disk. A second daemon
// cannot open the same file meanwhile: PATH.lock is held. A file that cannot be understood is put aside as PATH.damaged-TIME,
// and told.
//
// Thread class: as Store. Put and Delete take as long as the disk does, whatever the deadline.

#ifndef GRADGATE_DAEMON_STORE_FILE_STORE_H_
#define GRADGATE_DAEMON_STORE_FILE_STORE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/store/store.h"

namespace gradgate {

// Opens or begins a store; the file is made by the first Put. `log`, called within: for people, what is remarkable.
// FAILED_PRECONDITION: another daemon has it, or PATH is no file. PERMISSION_DENIED, NOT_FOUND (of the directory), UNAVAILABLE.
absl::StatusOr<std::unique_ptr<Store>> OpenFileStore(const std::string& path,
                                                     const std::function<void(absl::string_view)>& log);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_FILE_STORE_H_
