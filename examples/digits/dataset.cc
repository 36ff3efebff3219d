#include "examples/digits/dataset.h"

#include <charconv>
#include <fstream>
#include <stdexcept>

#include "examples/digits/random.h"

namespace digits {
namespace {

bool ParseImage(const std::string& line, Image* image) {
  const char* at = line.data();
  const char* const end = at + line.size();
  for (uint32_t field = 0; field <= kPixels; ++field) {
    unsigned value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    const bool last = field == kPixels;
    if (error != std::errc() || value > (last ? kClasses - 1 : 16u)) return false;
    if (last) {
      image->label = static_cast<uint8_t>(value);
      return next == end;
    }
    if (next == end || *next != ',') return false;
    image->pixels[field] = static_cast<uint8_t>(value);
    at = next + 1;
  }
  return false;
}

}  // namespace

Dataset LoadDataset(const std::string& path, uint64_t seed) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path + ": give the CSV with --data");
  std::vector<Image> images;
  for (std::string line; std::getline(file, line);) {
    if (!ParseImage(line, &images.emplace_back())) {
      throw std::runtime_error(path + ":" + std::to_string(images.size()) + ": not 64 pixels of 0 to 16 and a digit");
    }
  }
  const uint32_t count = static_cast<uint32_t>(images.size());
  if (count < 5) throw std::runtime_error(path + ": fewer than 5 images");

  Dataset dataset;
  for (const uint32_t index : Random(seed).Permutation(count)) {
    (dataset.held_out.size() < count / 5 ? dataset.held_out : dataset.training).push_back(images[index]);
  }
  return dataset;
}

}  // namespace digits
