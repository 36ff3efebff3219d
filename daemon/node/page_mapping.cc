#include "daemon/node/page_mapping.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/node/rejection.h"

namespace gradgate {

absl::StatusOr<std::unique_ptr<PageMapping>> PageMapping::Map(int fd) {
  // Seals first: a file system that is a stranger's program (FUSE) is not asked for them, but may never answer an fstat.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0)
    return Reject(Rejection::kPageNotMemfd, "descriptor is not in anonymous memory: it has no seals; send a memfd");
  struct stat file;
  struct statfs file_system;
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) {
    return Reject(Rejection::kPageNotMemfd, "descriptor is not a regular file; send a memfd");
  }
  // A memfd of huge pages is refused: reading it can fail for want of a huge page.
  if (fstatfs(fd, &file_system) != 0 || file_system.f_type != TMPFS_MAGIC) {
    return Reject(Rejection::kPageNotMemfd, "descriptor is not in anonymous memory of ordinary pages; send a memfd");
  }
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  if ((seals & kNeeded) != kNeeded) {
    return Reject(Rejection::kPageUnsealed,
                  absl::StrCat("stats page has seals ", seals, ", needs F_SEAL_SHRINK and F_SEAL_GROW (", kNeeded, ")"));
  }
  // After the seals: from here on the size cannot change.
  if (fstat(fd, &file) != 0 || file.st_size < static_cast<off_t>(sizeof(page::StatsPage))) {
    return Reject(Rejection::kPageShort,
                  absl::StrCat("stats page has ", file.st_size, " bytes, needs ", sizeof(page::StatsPage)));
  }
  void* address = mmap(nullptr, sizeof(page::StatsPage), PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return Reject(Rejection::kPageMap, absl::StrCat("cannot map stats page: ", std::strerror(errno)));
  return std::unique_ptr<PageMapping>(new PageMapping(address, FileId{file.st_dev, file.st_ino}));
}

PageMapping::~PageMapping() { munmap(address_, sizeof(page::StatsPage)); }

}  // namespace gradgate
