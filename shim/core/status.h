// The shim's status: a canonical code, numerically absl's and gRPC's, and a text for people. The shim has no Abseil.

#ifndef GRADGATE_SHIM_CORE_STATUS_H_
#define GRADGATE_SHIM_CORE_STATUS_H_

#include <cstdint>
#include <memory>
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

// One pointer, null when ok: the hot path makes, passes and drops statuses for nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message)
      : failure_(code == Code::kOk ? nullptr : std::make_unique<Failure>(Failure{code, std::move(message)})) {}
  Status(const Status& other) : failure_(other.failure_ ? std::make_unique<Failure>(*other.failure_) : nullptr) {}
  Status(Status&&) noexcept = default;
  Status& operator=(const Status& other) { return *this = Status(other); }
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  bool ok() const { return failure_ == nullptr; }
  Code code() const { return failure_ ? failure_->code : Code::kOk; }
  const std::string& message() const {
    static const std::string kNone;
    return failure_ ? failure_->message : kNone;
  }

 private:
  struct Failure {
    Code code;
    std::string message;
  };
  std::unique_ptr<Failure> failure_;
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
