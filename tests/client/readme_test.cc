// client/README.md shows the program that is compiled here.

#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

std::string Contents(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

TEST(Readme, ShowsTheExampleThatCompiles) {
  EXPECT_THAT(Contents(README_FILE), ::testing::HasSubstr("```cpp\n" + Contents(EXAMPLE_FILE) + "```\n"));
}

}  // namespace
}  // namespace gradgate
