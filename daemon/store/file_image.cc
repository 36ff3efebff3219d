#include "daemon/store/file_image.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gradgate/store/v1/store.pb.h"

namespace gradgate {
namespace {

constexpr absl::string_view kMagic = "ggstore1";
constexpr size_t kHeaderBytes = 24;

uint64_t Checksum(absl::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

void AppendLittleEndian(uint64_t value, std::string& out) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

uint64_t LittleEndian(absl::string_view eight_bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(eight_bytes[i]);
  return value;
}

absl::Status Add(const store::v1::StoreFileEntry& entry, StoreImage& image) {
  if (absl::Status s = CheckStoreKey(entry.key()); !s.ok()) return s;
  if (absl::Status s = CheckStoreValue(entry.key(), entry.value()); !s.ok()) return s;
  if (entry.revision() < 1 || entry.revision() > image.revision) {
    return absl::DataLossError(absl::StrCat(entry.key(), " has revision ", entry.revision(), ", the file ", image.revision));
  }
  if (!image.values.emplace(entry.key(), StoredValue{entry.key(), entry.value(), entry.revision()}).second) {
    return absl::DataLossError(absl::StrCat(entry.key(), " is there twice"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeStoreFile(const StoreImage& image) {
  store::v1::StoreFile file;
  file.set_revision(image.revision);
  for (const auto& [key, value] : image.values) {
    store::v1::StoreFileEntry& entry = *file.add_entries();
    entry.set_key(key);
    entry.set_value(value.value);
    entry.set_revision(value.revision);
  }
  const std::string body = file.SerializeAsString();
  std::string bytes(kMagic);
  AppendLittleEndian(body.size(), bytes);
  AppendLittleEndian(Checksum(body), bytes);
  return bytes + body;
}

absl::StatusOr<StoreImage> DecodeStoreFile(absl::string_view bytes_untrusted) {
  if (!absl::StartsWith(bytes_untrusted, kMagic)) return absl::DataLossError("it is not a gradgate store");
  if (bytes_untrusted.size() < kHeaderBytes) return absl::DataLossError("it is cut off within its header");
  if (bytes_untrusted.size() > kMaxStoreFileBytes) return absl::DataLossError("it is longer than a store may be");
  const uint64_t length = LittleEndian(bytes_untrusted.substr(8, 8));
  const absl::string_view body = bytes_untrusted.substr(kHeaderBytes);
  if (body.size() != length) {
    return absl::DataLossError(absl::StrCat("it says that ", length, " bytes follow its header, and ", body.size(), " do"));
  }
  if (Checksum(body) != LittleEndian(bytes_untrusted.substr(16, 8))) return absl::DataLossError("its checksum is wrong");
  store::v1::StoreFile file;
  if (!file.ParseFromArray(body.data(), static_cast<int>(body.size()))) return absl::DataLossError("it cannot be parsed");
  StoreImage image;
  image.revision = file.revision();
  if (image.revision < 0 || image.revision > INT64_MAX / 2) return absl::DataLossError("its revision is out of range");
  for (const store::v1::StoreFileEntry& entry : file.entries()) {
    if (absl::Status s = Add(entry, image); !s.ok()) return absl::DataLossError(s.message());
  }
  if (image.values.size() > kMaxStoreKeys || ByteCount(image) > kMaxStoreBytes) {
    return absl::DataLossError("it holds more than a store may");
  }
  return image;
}

}  // namespace gradgate
