// A fresh directory that goes with the object.

#ifndef GRADGATE_TESTS_SHIM_REDUCE_TEMPORARY_DIRECTORY_H_
#define GRADGATE_TESTS_SHIM_REDUCE_TEMPORARY_DIRECTORY_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace gradgate {

class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(testing::TempDir() + "gg_XXXXXX") { EXPECT_NE(::mkdtemp(path_.data()), nullptr) << path_; }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace gradgate

#endif  // GRADGATE_TESTS_SHIM_REDUCE_TEMPORARY_DIRECTORY_H_
