#include "tests/fuzz/target.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace gradgate::fuzz {
namespace {

struct Scratch {
  Scratch() {
    const char* base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    path = std::string(base) + "/gradgate-fuzz-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) {
      std::perror(path.c_str());
      std::exit(1);
    }
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

void MakeCorpus(const std::string& directory) {
  std::filesystem::create_directories(directory);
  int number = 0;
  for (const std::string& seed : Seeds()) {
    std::ofstream file(directory + "/seed-" + std::to_string(number++), std::ios::binary);
    file << seed;
    if (!file.flush()) {
      std::perror(directory.c_str());
      std::exit(1);
    }
  }
}

}  // namespace

void FailCheck(const char* file, int line, const char* condition, const std::string& detail) {
  std::fprintf(stderr, "%s:%d: FUZZ_CHECK failed: %s\n  %s\n", file, line, condition, detail.c_str());
  std::abort();
}

int LowestFreeDescriptor() {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(fd);
  return fd;
}

void CheckNoDescriptorIsLeft(int lowest) {
  constexpr int kMaxTries = 50'000;  // some 5 s
  for (int i = 0; i < kMaxTries && LowestFreeDescriptor() != lowest; ++i) usleep(100);
  FUZZ_CHECK(LowestFreeDescriptor() == lowest, "a descriptor is left open");
}

const std::string& ScratchDirectory() {
  static const Scratch scratch;
  return scratch.path;
}

}  // namespace gradgate::fuzz

extern "C" {

__attribute__((visibility("default"))) int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc == 3 && std::string_view((*argv)[1]) == "--make-corpus") {
    gradgate::fuzz::MakeCorpus((*argv)[2]);
    std::exit(0);
  }
  return 0;
}

// A finding ends the process, whatever the environment says.
__attribute__((visibility("default"))) const char* __ubsan_default_options() { return "halt_on_error=1:print_stacktrace=1"; }

// Short stacks for allocations, and a small quarantine: several times faster.
__attribute__((visibility("default"))) const char* __asan_default_options() {
  return "malloc_context_size=6:quarantine_size_mb=16";
}

}  // extern "C"
