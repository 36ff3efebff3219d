// The hand-written digits, read from data/digits.csv and split into training and held-out images.

#ifndef GRADGATE_EXAMPLES_DIGITS_DATASET_H_
#define GRADGATE_EXAMPLES_DIGITS_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

namespace digits {

inline constexpr uint32_t kPixels = 64;  // 8 × 8
inline constexpr uint32_t kClasses = 10;

// One image: ink per pixel, 0 to 16, and the digit it shows.
struct Image {
  uint8_t pixels[kPixels];
  uint8_t label;
};

struct Dataset {
  std::vector<Image> training;
  std::vector<Image> held_out;
};

// Reads the CSV (64 pixels and the label per line) and holds out a fifth of the images, chosen by `seed`. Throws
// std::runtime_error naming the file and line that is wrong.
Dataset LoadDataset(const std::string& path, uint64_t seed);

}  // namespace digits

#endif  // GRADGATE_EXAMPLES_DIGITS_DATASET_H_
