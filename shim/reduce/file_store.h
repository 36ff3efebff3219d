// A store in a directory that all ranks see: one machine's disk or a shared file system.
//
//   <directory>/k.<key>              a value, whole: written under a temporary name, then renamed
//   <directory>/d.<part>/…/k.<part>  the same for a key whose escaped name is too long for one file name
//   <directory>/t.<pid>.<random>     a value being written
//
// Letters, digits, '_' and '-' stand for themselves, other bytes are %XX. Nothing is ever deleted: give each run a fresh
// directory. Thread class: any thread. Get polls, 1 ms at first and up to 20 ms. A file system that hangs holds the caller past
// its timeout.

#ifndef GRADGATE_SHIM_REDUCE_FILE_STORE_H_
#define GRADGATE_SHIM_REDUCE_FILE_STORE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "shim/reduce/store.h"

namespace gradgate {

class FileStore final : public Store {
 public:
  // The directory and its parents are created by the first call that needs them.
  explicit FileStore(std::string directory);

  // kUnavailable: the directory or the file cannot be created or written. kResourceExhausted: the disk or quota is full. Both
  // name the path.
  Status Set(const std::string& key, std::string_view value, int64_t timeout_ns) override;
  // kUnavailable: the file is there and cannot be read, or cannot be a value. kNotFound also while the directory is not there.
  Status Get(const std::string& key, int64_t timeout_ns, std::string* value) override;

 private:
  const std::string directory_;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_FILE_STORE_H_
