// FNV-1a over 64-bit words. Standard library only.

#ifndef GRADGATE_PROTO_SHM_HASH_H_
#define GRADGATE_PROTO_SHM_HASH_H_

#include <cstdint>

namespace gradgate {

template <typename... Words>
constexpr uint64_t HashWords(Words... words) {
  uint64_t hash = 0xcbf29ce484222325;
  const uint64_t all[] = {static_cast<uint64_t>(words)...};
  for (uint64_t word : all) {
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ ((word >> shift) & 0xff)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace gradgate

#endif  // GRADGATE_PROTO_SHM_HASH_H_
