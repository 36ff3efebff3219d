// A rendezvous store over the caller's callbacks (gg_store_callbacks), such as torch's.

#ifndef GRADGATE_SHIM_CAPI_CALLBACK_STORE_H_
#define GRADGATE_SHIM_CAPI_CALLBACK_STORE_H_

#include <string>
#include <string_view>

#include "shim/include/gradgate/gradgate.h"
#include "shim/reduce/store.h"

namespace gradgate {

// Thread class: as the callbacks; gradgate calls it on the threads that call into gradgate.
class CallbackStore : public Store {
 public:
  explicit CallbackStore(const gg_store_callbacks& callbacks) : callbacks_(callbacks) {}

  Status Set(const std::string& key, std::string_view value, int64_t timeout_ns) override {
    const gg_status_t code = callbacks_.set(callbacks_.user, key.c_str(), value.data(), value.size(), timeout_ns);
    return code == GG_OK ? OkStatus() : Failed(Code::kUnavailable, code, "set", key);
  }

  Status Get(const std::string& key, int64_t timeout_ns, std::string* value) override {
    std::string buffer(4096, '\0');
    size_t bytes = 0;
    gg_status_t code = callbacks_.get(callbacks_.user, key.c_str(), buffer.data(), buffer.size(), &bytes, timeout_ns);
    if (code == GG_OK && bytes > buffer.size() && bytes <= kMaxValueBytes) {
      buffer.resize(bytes);
      code = callbacks_.get(callbacks_.user, key.c_str(), buffer.data(), buffer.size(), &bytes, timeout_ns);
    }
    if (code != GG_OK) return Failed(code == GG_NOT_FOUND ? Code::kNotFound : Code::kUnavailable, code, "get", key);
    if (bytes > buffer.size()) return Internal("the store's value for \"" + key + "\" has " + std::to_string(bytes) + " bytes");
    buffer.resize(bytes);
    *value = std::move(buffer);
    return OkStatus();
  }

 private:
  static constexpr size_t kMaxValueBytes = 64 << 10;

  static Status Failed(Code known, gg_status_t code, const char* call, const std::string& key) {
    return {known, std::string("the caller's store: ") + call + "(\"" + key + "\") returned " + gg_status_name(code)};
  }

  const gg_store_callbacks callbacks_;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CAPI_CALLBACK_STORE_H_
