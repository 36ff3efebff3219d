// Counts the system calls of a piece of code, without a tracer and without rights: a seccomp filter turns each call of this
// thread into a signal, whose handler counts it and lets it fail with ENOSYS.

#ifndef GRADGATE_BENCH_SYSTEM_CALLS_H_
#define GRADGATE_BENCH_SYSTEM_CALLS_H_

#include <cstdint>
#include <functional>

namespace gradgate::bench {

// Runs `prepare`, then `body` with its calls counted, in a forked child, since a filter cannot be taken off again. −1: the
// kernel refuses filters, or the child died.
int64_t CountSystemCalls(const std::function<void()>& prepare, const std::function<void()>& body);

}  // namespace gradgate::bench

#endif  // GRADGATE_BENCH_SYSTEM_CALLS_H_
