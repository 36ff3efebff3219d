// A directory that goes away with everything in it.

#ifndef GRADGATE_TESTS_DAEMON_STORE_TEMP_DIR_H_
#define GRADGATE_TESTS_DAEMON_STORE_TEMP_DIR_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace gradgate::testing {

class TempDir {
 public:
  TempDir() {
    std::string pattern = ::testing::TempDir() + "/gg_XXXXXX";
    path_ = std::filesystem::canonical(mkdtemp(pattern.data()));
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_STORE_TEMP_DIR_H_
