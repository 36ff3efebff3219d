// Whether this is a build with a sanitizer: one keeps what was freed, and a shadow of all memory.

#ifndef GRADGATE_TESTS_DAEMON_SANITIZED_H_
#define GRADGATE_TESTS_DAEMON_SANITIZED_H_

namespace gradgate::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_SANITIZED_H_
