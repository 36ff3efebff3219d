#include "tests/golden/golden.h"

#include <cstring>
#include <fstream>
#include <sstream>

namespace gradgate::golden {
namespace {

std::ifstream Open(const std::string& file) {
  const std::string path = std::string(GOLDEN_DIR) + "/" + file;
  std::ifstream in(path);
  EXPECT_TRUE(in.is_open()) << path << " is missing; tests/golden/README.md says how it is made";
  return in;
}

}  // namespace

std::vector<char> ReadBytes(const std::string& version, const std::string& name) {
  std::ifstream in = Open(version + "/" + name + ".hex");
  std::vector<char> bytes;
  for (std::string line; std::getline(in, line);) {  // "00000040: 676f…"; the last one has the size alone
    const size_t offset = std::stoul(line, nullptr, 16);
    const std::string digits = line.size() > 10 ? line.substr(10) : "";
    bytes.resize(offset + digits.size() / 2);
    for (size_t i = 0; i + 1 < digits.size(); i += 2) {
      bytes[offset + i / 2] = static_cast<char>(std::stoul(digits.substr(i, 2), nullptr, 16));
    }
  }
  return bytes;
}

std::map<std::string, uint64_t> ReadCounts(const std::string& version, int rank) {
  std::ifstream in = Open(version + "/counts." + std::to_string(rank) + ".txt");
  std::map<std::string, uint64_t> counts;
  std::string name;
  for (uint64_t value = 0; in >> name >> value;) counts[name] = value;
  return counts;
}

Layout::Layout(const std::string& file) {
  std::ifstream in = Open(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string what, word;
    words >> what >> word;
    if (word == "offset") {  // "PageTotals.step_count offset 24 bytes 8"
      Field& field = fields_[what];
      words >> field.offset >> word >> field.bytes;
    } else if (word == "bytes") {  // "PageTotals bytes 256"
      words >> sizes_[what];
    } else if (what != "version") {  // "magic 3550895089901455175"
      values_[what] = std::stoull(word);
    }
  }
}

uint64_t Layout::Read(const char* bytes, size_t base, const std::string& field) const {
  const auto at = fields_.find(field);
  uint64_t value = 0;
  if (at == fields_.end() || at->second.bytes > sizeof(value)) {
    ADD_FAILURE() << "no integer " << field << " in this layout";
    return 0;
  }
  std::memcpy(&value, bytes + base + at->second.offset, at->second.bytes);
  return value;
}

}  // namespace gradgate::golden
