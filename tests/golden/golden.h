// Reads what record.py has kept of each version of the stats page and the socket frames.

#ifndef GRADGATE_TESTS_GOLDEN_GOLDEN_H_
#define GRADGATE_TESTS_GOLDEN_GOLDEN_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gradgate::golden {

// The page's versions, the oldest first: folders of tests/golden. Frames 1.0 came with page 1.0.
inline const std::vector<std::string> kVersions = {"1.0", "1.1", "1.2"};

// "v1_0", for a test that has a version as its parameter.
inline std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = "v" + info.param;
  name[2] = '_';
  return name;
}

// The bytes of VERSION/NAME.hex. Fails the test, and is empty, where it cannot be read.
std::vector<char> ReadBytes(const std::string& version, const std::string& name);

// VERSION/counts.RANK.txt: what the trainer's own library counted.
std::map<std::string, uint64_t> ReadCounts(const std::string& version, int rank);

// Where that version's code says that fields are.
class Layout {
 public:
  struct Field {
    size_t offset = 0, bytes = 0;
    bool operator==(const Field&) const = default;
  };

  // A file in tests/golden, as tests/proto writes it.
  explicit Layout(const std::string& file);

  const std::map<std::string, Field>& fields() const { return fields_; }      // by "PageTotals.step_count"
  const std::map<std::string, size_t>& sizes() const { return sizes_; }       // by "PageTotals"
  uint64_t value(const std::string& name) const { return values_.at(name); }  // "layout_hash", "magic"

  // An integer of up to 8 bytes, `field` of a struct that begins at `base`. Fails the test where there is no such field.
  uint64_t Read(const char* bytes, size_t base, const std::string& field) const;

 private:
  std::map<std::string, Field> fields_;
  std::map<std::string, size_t> sizes_;
  std::map<std::string, uint64_t> values_;
};

}  // namespace gradgate::golden

#endif  // GRADGATE_TESTS_GOLDEN_GOLDEN_H_
