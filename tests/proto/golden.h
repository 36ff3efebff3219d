// tests/proto
// Compares a description of bytes that cross processes with the text file that pins it.

#ifndef GRADGATE_TESTS_PROTO_GOLDEN_H_
#define GRADGATE_TESTS_PROTO_GOLDEN_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>

namespace gradgate::test {

inline void ExpectGolden(const std::string& actual, const std::string& file) {
  const std::string path = std::string(GOLDEN_DIR) + "/" + file;
  std::ifstream in(path);
  ASSERT_TRUE(in.is_open()) << path << " is missing; it should hold:\n" << actual;
  std::stringstream golden;
  golden << in.rdbuf();
  EXPECT_EQ(golden.str(), actual)
      << "The layout changed. If it only appends, raise the minor version, else the major; then write\n"
      << "the text above into " << path;
}

// One line, "Type.field offset N bytes M".
inline std::string FieldLine(const char* type, const char* field, size_t offset, size_t bytes) {
  return std::string(type) + "." + field + " offset " + std::to_string(offset) + " bytes " + std::to_string(bytes) + "\n";
}

}  // namespace gradgate::test

#define GG_FIELD(type, field) ::gradgate::test::FieldLine(#type, #field, offsetof(type, field), sizeof(type::field))

#endif  // GRADGATE_TESTS_PROTO_GOLDEN_H_
