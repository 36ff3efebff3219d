// Maps the stats page behind a descriptor that an untrusted trainer sent, once the kernel vouches that it stays mappable.
//
// Without the seals a trainer could shrink the file under the daemon, whose next read would be a SIGBUS.
// Thread class: one thread per object; the mapped bytes may be read from any thread.

#ifndef GRADGATE_DAEMON_NODE_PAGE_MAPPING_H_
#define GRADGATE_DAEMON_NODE_PAGE_MAPPING_H_

#include <sys/types.h>

#include <memory>

#include "absl/status/statusor.h"
#include "proto/shm/stats_page.h"

namespace gradgate {

class PageMapping {
 public:
  // Checks that `fd` is a regular file in anonymous memory (ordinary pages), sealed against shrinking and growing, no smaller
  // than a StatsPage, and maps it read-only. Borrows the descriptor: the mapping keeps the memory. Never waits: no file system
  // but the kernel's own memory is asked anything. Errors: Rejection::kPageNotMemfd, kPageUnsealed, kPageShort, kPageMap.
  static absl::StatusOr<std::unique_ptr<PageMapping>> Map(int fd);

  PageMapping(const PageMapping&) = delete;
  PageMapping& operator=(const PageMapping&) = delete;
  ~PageMapping();

  // The trainer may write to it at any time. Valid as long as this object.
  const page::StatsPage* page_untrusted() const { return static_cast<const page::StatsPage*>(address_); }

  // Tells one file from another while either is open or mapped.
  struct FileId {
    dev_t device;
    ino_t inode;
    bool operator==(const FileId&) const = default;
  };
  FileId file_id() const { return file_id_; }

 private:
  PageMapping(void* address, FileId file_id) : address_(address), file_id_(file_id) {}

  void* const address_;
  const FileId file_id_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_PAGE_MAPPING_H_
