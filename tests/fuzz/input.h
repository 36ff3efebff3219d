// Takes a fuzzer's bytes apart, front to back. What is missing reads as zero or as empty, so that every input means something.
//
// Thread class: one thread per object. The bytes are borrowed.

#ifndef GRADGATE_TESTS_FUZZ_INPUT_H_
#define GRADGATE_TESTS_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace gradgate::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  // As the machine stores it.
  template <typename T>
  T Number() {
    T value{};
    Take(&value, sizeof(value));
    return value;
  }
  uint8_t Byte() { return Number<uint8_t>(); }

  // 0 … count − 1, from one byte; count ≤ 256.
  size_t Below(size_t count) { return Byte() % count; }
  bool Coin() { return (Byte() & 1) != 0; }

  // Up to `count` bytes.
  std::string Bytes(size_t count) {
    std::string bytes(std::min(count, size_), '\0');
    Take(bytes.data(), bytes.size());
    return bytes;
  }
  // A byte of length, then as many bytes.
  std::string Text() { return Bytes(Byte()); }
  std::string Rest() { return Bytes(size_); }

 private:
  void Take(void* out, size_t count) {
    count = std::min(count, size_);
    if (count == 0) return;
    std::memcpy(out, data_, count);
    data_ += count;
    size_ -= count;
  }

  const uint8_t* data_;
  size_t size_;
};

// The way back: a seed that an Input takes apart again.
class SeedBuilder {
 public:
  template <typename T>
  SeedBuilder& Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  SeedBuilder& Byte(unsigned value) { return Number(static_cast<uint8_t>(value)); }
  SeedBuilder& Raw(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }
  SeedBuilder& Text(const std::string& text) { return Byte(static_cast<unsigned>(text.size())).Raw(text); }

  operator std::string() const { return bytes_; }

 private:
  std::string bytes_;
};

// The bytes of a plain value.
template <typename T>
std::string BytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace gradgate::fuzz

#endif  // GRADGATE_TESTS_FUZZ_INPUT_H_
