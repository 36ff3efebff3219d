// The shim's status: a canonical code, numerically absl's and gRPC's, and a text for people. The shim has no Abseil.

#ifndef GRADGATE_SHIM_CORE_STATUS_H_
#define GRADGATE_SHIM_CORE_STATUS_H_

#include <cstdint>
#include <string>
#include <utility>

namespace gradgate {

enum class Code : int32_t {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
inline Status InvalidArgument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
inline Status DeadlineExceeded(std::string message) { return {Code::kDeadlineExceeded, std::move(message)}; }
inline Status NotFound(std::string message) { return {Code::kNotFound, std::move(message)}; }
inline Status ResourceExhausted(std::string message) { return {Code::kResourceExhausted, std::move(message)}; }
inline Status FailedPrecondition(std::string message) { return {Code::kFailedPrecondition, std::move(message)}; }
inline Status Aborted(std::string message) { return {Code::kAborted, std::move(message)}; }
inline Status Unimplemented(std::string message) { return {Code::kUnimplemented, std::move(message)}; }
inline Status Internal(std::string message) { return {Code::kInternal, std::move(message)}; }
inline Status Unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CORE_STATUS_H_
