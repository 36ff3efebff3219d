#include "shim/reduce/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "shim/reduce/store_limits.h"

namespace gradgate {
namespace {

constexpr size_t kMaxNameBytes = 200;  // file names may have 255 bytes; encrypted file systems allow fewer

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  int Close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

Status FromErrno(const std::string& what, const std::string& path, int error) {
  std::string text = what + " '" + path + "': " + std::generic_category().message(error);
  if (error == ENOSPC || error == EDQUOT)
    return ResourceExhausted(std::move(text) + "; free some space or use another directory");
  return Unavailable(std::move(text));
}

std::string Escape(const std::string& key) {
  std::string out;
  for (const char c : key) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-') {
      out += c;
    } else {
      char hex[4];
      std::snprintf(hex, sizeof(hex), "%%%02X", static_cast<unsigned char>(c));
      out += hex;
    }
  }
  return out;
}

// The directory and the name of a key's file. The prefixes keep a key's file apart from the folder of a longer key.
std::pair<std::string, std::string> Locate(std::string directory, const std::string& key) {
  std::string name = Escape(key);
  while (name.size() > kMaxNameBytes) {
    directory += "/d." + name.substr(0, kMaxNameBytes);
    name.erase(0, kMaxNameBytes);
  }
  return {std::move(directory), "k." + name};
}

Status WriteAll(int fd, const std::string& path, std::string_view value) {
  while (!value.empty()) {
    const ssize_t n = ::write(fd, value.data(), value.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno("cannot write store file", path, errno);
    value.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

// One attempt. kNotFound: not there yet.
Status ReadOnce(const std::string& directory, const std::string& name, std::string* value) {
  const std::string path = directory + "/" + name;
  // Opening the directory makes a network file system look again instead of answering from its cache of absent names.
  const Fd folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) {
    if (errno == ENOENT) return NotFound("");
    return FromErrno("cannot open store directory", directory, errno);
  }
  const Fd file(::openat(folder.get(), name.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno == ENOENT || errno == ESTALE) return NotFound("");
    return FromErrno("cannot open store file", path, errno);
  }
  std::string bytes(kStoreMaxValueBytes + 1, '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t n = ::read(file.get(), bytes.data() + size, bytes.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == ESTALE) return NotFound("");  // replaced meanwhile
    if (n < 0) return FromErrno("cannot read store file", path, errno);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size > kStoreMaxValueBytes)
    return Unavailable("store file '" + path + "' is longer than any value; use a fresh directory");
  bytes.resize(size);
  *value = std::move(bytes);
  return OkStatus();
}

std::string TemporaryName() {
  std::random_device random;  // process ids repeat across the machines and containers of a job
  char name[64];
  std::snprintf(name, sizeof(name), "t.%d.%08x%08x", static_cast<int>(::getpid()), random(), random());
  return name;
}

}  // namespace

FileStore::FileStore(std::string directory) : directory_(std::move(directory)) {}

Status FileStore::Set(const std::string& key, std::string_view value, int64_t timeout_ns) {
  if (Status status = CheckStoreCall(key, value.size(), timeout_ns); !status.ok()) return status;
  const auto [directory, name] = Locate(directory_, key);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return FromErrno("cannot create store directory", directory, error.value());

  const std::string path = directory + "/" + name;
  const std::string temporary = directory + "/" + TemporaryName();
  Fd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) return FromErrno("cannot create store file", temporary, errno);
  Status status = WriteAll(file.get(), temporary, value);
  if (status.ok() && file.Close() != 0) status = FromErrno("cannot write store file", temporary, errno);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0)
    status = FromErrno("cannot rename to store file", path, errno);
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

Status FileStore::Get(const std::string& key, int64_t timeout_ns, std::string* value) {
  if (Status status = CheckStoreCall(key, 0, timeout_ns); !status.ok()) return status;
  const auto [directory, name] = Locate(directory_, key);
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::nanoseconds timeout(timeout_ns);
  std::chrono::nanoseconds pause = std::chrono::milliseconds(1);
  for (;;) {
    Status status = ReadOnce(directory, name, value);
    if (status.code() != Code::kNotFound) return status;
    const auto left = timeout - (std::chrono::steady_clock::now() - start);
    if (left <= std::chrono::nanoseconds::zero()) {
      return NotFound("store key '" + key + "' did not appear in '" + directory_ + "' within " +
                      std::to_string(static_cast<double>(timeout_ns) / 1e9) + " s");
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, left));
    pause = std::min<std::chrono::nanoseconds>(pause * 3 / 2, std::chrono::milliseconds(20));
  }
}

}  // namespace gradgate
