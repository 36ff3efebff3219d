// Between gradgate.h's plain C and the shim's types: growing structs, errors, and the firewall that lets no exception out.

#ifndef GRADGATE_SHIM_CAPI_CONVERT_H_
#define GRADGATE_SHIM_CAPI_CONVERT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "shim/core/status.h"
#include "shim/include/gradgate/gradgate.h"

namespace gradgate {

[[gnu::cold]] inline gg_status_t ReportFailure(const Status& status, gg_error* error) {
  if (error) {
    error->code = static_cast<gg_status_t>(status.code());
    error->reserved = 0;
    size_t bytes = std::min(status.message().size(), sizeof(error->message) - 1);
    // Not in the middle of a UTF-8 character.
    if (bytes < status.message().size()) {
      while (bytes > 0 && (status.message()[bytes] & 0xc0) == 0x80) --bytes;
    }
    std::memcpy(error->message, status.message().data(), bytes);
    error->message[bytes] = '\0';
  }
  return static_cast<gg_status_t>(status.code());
}

inline Status IsNull(const char* name) { return InvalidArgument(std::string(name) + " is NULL"); }

// Writes `status` into the caller's error, if there is one, and returns its code.
inline gg_status_t Report(const Status& status, gg_error* error) { return status.ok() ? GG_OK : ReportFailure(status, error); }

// Runs `body`, which returns a Status; whatever it throws becomes one.
template <typename Body>
gg_status_t Guarded(gg_error* error, Body&& body) noexcept {
  try {
    return Report(body(), error);
  } catch (const std::bad_alloc&) {
    if (error) {
      *error = gg_error{GG_RESOURCE_EXHAUSTED, 0, "out of memory"};
    }
    return GG_RESOURCE_EXHAUSTED;
  } catch (...) {
    if (error) {
      *error = gg_error{GG_INTERNAL, 0, "an exception reached the C interface; please report this"};
    }
    return GG_INTERNAL;
  }
}

// ReadStruct for a struct that is NULL, older or newer.
template <typename T>
[[gnu::cold]] Status ReadOtherStruct(const T* in, const char* name, T* out) {
  if (in == nullptr) return InvalidArgument(std::string(name) + " is NULL");
  const uint32_t size = in->struct_size;
  if (size < sizeof(uint32_t)) {
    return InvalidArgument(std::string(name) + ".struct_size is " + std::to_string(size) + "; start from its GG_..._INIT");
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return Unimplemented(std::string(name) + " of " + std::to_string(size) + " bytes sets a field that this library (" +
                           gg_version() + ") does not know; update the library");
    }
  }
  std::memcpy(out, in, std::min<size_t>(size, sizeof(T)));
  return OkStatus();
}

// Takes in a caller's struct that may be older (shorter) or newer (longer) than ours. *out is ours with its defaults.
template <typename T>
Status ReadStruct(const T* in, const char* name, T* out) {
  if (in == nullptr || in->struct_size != sizeof(T)) return ReadOtherStruct(in, name, out);
  *out = *in;
  return OkStatus();
}

// Fills as much of the caller's struct as the caller knows.
template <typename T>
Status WriteStruct(T value, const char* name, T* out) {
  if (out == nullptr) return InvalidArgument(std::string(name) + " is NULL");
  const uint32_t size = out->struct_size;
  if (size < sizeof(uint32_t)) {
    return InvalidArgument(std::string(name) + ".struct_size is " + std::to_string(size) + "; start from its GG_..._INIT");
  }
  value.struct_size = size;
  std::memcpy(static_cast<void*>(out), &value, std::min<size_t>(size, sizeof(T)));
  return OkStatus();
}

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CAPI_CONVERT_H_
