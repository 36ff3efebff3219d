// What every fuzz target shares: its seeds, and a check that ends the process where a promise is broken.
//
// A target is one file: LLVMFuzzerTestOneInput, and Seeds(), whose inputs reach what random bytes would not.

#ifndef GRADGATE_TESTS_FUZZ_TARGET_H_
#define GRADGATE_TESTS_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gradgate::fuzz {

// Defined by each target; written out by `fuzz_… --make-corpus DIRECTORY`.
std::vector<std::string> Seeds();

// Says what was expected where, with `detail`, and aborts.
[[noreturn]] void FailCheck(const char* file, int line, const char* condition, const std::string& detail);

// The lowest free descriptor: grows when one below it leaks.
int LowestFreeDescriptor();
// Waits up to 5 s for threads that close what may take a while.
void CheckNoDescriptorIsLeft(int lowest);

// A directory of this process alone, on memory where there is such; removed at exit. Made at the first call.
const std::string& ScratchDirectory();

}  // namespace gradgate::fuzz

// `detail` is a std::string expression, evaluated on failure alone.
#define FUZZ_CHECK(condition, detail)                                                      \
  do {                                                                                     \
    if (!(condition)) ::gradgate::fuzz::FailCheck(__FILE__, __LINE__, #condition, detail); \
  } while (false)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#endif  // GRADGATE_TESTS_FUZZ_TARGET_H_
