#include "daemon/store/file_store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/node/unique_fd.h"
#include "daemon/store/file_image.h"
#include "daemon/store/file_lock.h"
#include "daemon/store/memory_store.h"

namespace gradgate {
namespace {

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0 ? absl::OkStatus() : FileError("write", path, errno);
}

absl::Status SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || fsync(fd.get()) != 0) return FileError("sync the directory of", path, errno);
  return absl::OkStatus();
}

absl::Status ReplaceFile(const std::string& path, absl::string_view bytes) {
  const std::string birth_path = absl::StrCat(path, ".new");
  unlink(birth_path.c_str());
  UniqueFd fd(open(birth_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return FileError("make", birth_path, errno);
  absl::Status status = WriteAll(fd.get(), bytes, birth_path);
  if (status.ok() && rename(birth_path.c_str(), path.c_str()) != 0) status = FileError("replace", path, errno);
  if (!status.ok()) {
    unlink(birth_path.c_str());
    return status;
  }
  return SyncDirectoryOf(path);
}

// Nothing if there is no such file.
absl::StatusOr<std::optional<std::string>> ReadFile(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) return FileError("read", path, errno);
  struct stat file;
  if (fstat(fd.get(), &file) != 0) return FileError("look at", path, errno);
  if (!S_ISREG(file.st_mode)) return absl::FailedPreconditionError(absl::StrCat(path, " is no file; give another --store"));
  std::string bytes;
  char buffer[16384];
  while (bytes.size() <= kMaxStoreFileBytes) {  // one that is longer is refused by its length
    const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("read", path, errno);
    if (got == 0) break;
    bytes.append(buffer, static_cast<size_t>(got));
  }
  return bytes;
}

class FileStore final : public MemoryStore {
 public:
  FileStore(StoreImage image, std::string path, FileLock lock, std::string warning)
      : MemoryStore(std::move(image)), path_(std::move(path)), lock_(std::move(lock)), warning_(std::move(warning)) {}
  ~FileStore() override { StopTelling(); }

  StoreHealth Health() const override {
    StoreHealth health = MemoryStore::Health();
    health.name = absl::StrCat("file ", path_);
    health.warning = warning_;
    return health;
  }

 private:
  absl::Status Save(const StoreImage& next) override { return ReplaceFile(path_, EncodeStoreFile(next)); }

  const std::string path_;
  const FileLock lock_;
  const std::string warning_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenFileStore(const std::string& given_path,
                                                     const std::function<void(absl::string_view)>& log) {
  std::string path = given_path;
  // A link stays one: the file that it names is replaced.
  if (char* real = realpath(given_path.c_str(), nullptr); real != nullptr) {
    path = real;
    free(real);
  }
  absl::StatusOr<FileLock> lock = FileLock::Take(path);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<std::optional<std::string>> bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  if (!bytes->has_value()) return std::make_unique<FileStore>(StoreImage(), path, *std::move(lock), "");
  absl::StatusOr<StoreImage> image = DecodeStoreFile(**bytes);
  if (image.ok()) return std::make_unique<FileStore>(*std::move(image), path, *std::move(lock), "");

  const int64_t now_seconds = absl::ToUnixSeconds(absl::Now());
  const std::string aside = absl::StrCat(path, ".damaged-", now_seconds);
  if (rename(path.c_str(), aside.c_str()) != 0) return FileError("put aside", path, errno);
  const std::string warning = absl::StrCat("the store's file ", path, " could not be used, ", image.status().message(),
                                           "; it was put aside as ", aside, " and the store begins empty");
  log(warning);
  // Nobody knows how far the revisions in it went; seconds are beyond all of them.
  StoreImage fresh;
  fresh.revision = now_seconds;
  return std::make_unique<FileStore>(std::move(fresh), path, *std::move(lock), warning);
}

}  // namespace gradgate
