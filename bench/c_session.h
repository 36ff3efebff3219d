// Sessions over gradgate.h as a trainer makes them, for measuring: errors end the program.

#ifndef GRADGATE_BENCH_C_SESSION_H_
#define GRADGATE_BENCH_C_SESSION_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gradgate/gradgate.h"

namespace gradgate::bench {

inline void Check(gg_status_t status, const gg_error& error) {
  if (status == GG_OK) return;
  std::fprintf(stderr, "bench: %s: %s\n", gg_status_name(status), error.message);
  std::exit(1);
}

// A rank's end of a Gloo group on this machine; of a world of 1: nothing.
struct Group {
  gg_store* store = nullptr;
  gg_transport* transport = nullptr;

  Group(const std::string& url, uint32_t rank, uint32_t world) {
    if (world == 1) return;
    gg_error error;
    gg_store_options options = GG_STORE_OPTIONS_INIT;
    options.url = url.c_str();
    Check(gg_store_open(&options, &store, &error), error);
    gg_gloo_options gloo = GG_GLOO_OPTIONS_INIT;
    gloo.rank = rank;
    gloo.world_size = world;
    gloo.store = store;
    gloo.interface_name = "lo";
    Check(gg_transport_open_gloo(&gloo, &transport, &error), error);
  }
  ~Group() {
    gg_transport_destroy(transport);
    gg_store_destroy(store);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
};

struct SessionShape {
  uint32_t accumulate = 4;
  gg_divide divide = GG_DIVIDE_WORLD;
  std::string daemon_dir = "";  // empty: no link
  std::string job = "bench";
};

class CSession {
 public:
  // gradients: null for a view.
  CSession(const Group& group, const SessionShape& shape, const std::vector<gg_tensor>& tensors)
      : count_(static_cast<uint32_t>(tensors.size())) {
    gg_session_options options = GG_SESSION_OPTIONS_INIT;
    options.accumulate = shape.accumulate;
    options.divide = shape.divide;
    options.tensor_count = static_cast<uint32_t>(tensors.size());
    options.tensors = tensors.data();
    options.store = group.store;
    options.transport = group.transport;
    options.job_name = shape.job.c_str();
    options.daemon_dir = shape.daemon_dir.c_str();
    options.log = &Log;
    gg_error error;
    Check(gg_session_create(&options, &session_, &error), error);
  }
  ~CSession() {
    gg_session_close(session_, nullptr);
    gg_session_destroy(session_);
  }
  CSession(const CSession&) = delete;
  CSession& operator=(const CSession&) = delete;

  // A micro-step without gradients, with as little around it as a trainer can have.
  uint32_t MicroStep(uint32_t last, gg_error* error) const {
    gg_micro_step micro_step = GG_MICRO_STEP_INIT;
    micro_step.last = last;
    uint32_t boundary = 0;
    if (gg_micro_step_begin(session_, &micro_step, &boundary, error) != GG_OK || gg_micro_step_end(session_, error) != GG_OK)
      Check(GG_INTERNAL, *error);
    return boundary;
  }

  gg_session* get() const { return session_; }

  float* gradient(uint32_t tensor) const {
    void* memory = nullptr;
    gg_error error;
    Check(gg_session_gradient(session_, tensor, &memory, &error), error);
    return static_cast<float*>(memory);
  }

  uint32_t Begin(uint32_t last = GG_LAST_BY_COUNT) const {
    gg_micro_step micro_step = GG_MICRO_STEP_INIT;
    micro_step.last = last;
    uint32_t boundary = 0;
    gg_error error;
    Check(gg_micro_step_begin(session_, &micro_step, &boundary, &error), error);
    return boundary;
  }
  void Ready(uint32_t tensor) const {
    gg_error error;
    Check(gg_gradient_ready(session_, tensor, &error), error);
  }
  void ReadyAll() const {
    for (uint32_t tensor = count_; tensor-- > 0;) Ready(tensor);
  }
  void End() const {
    gg_error error;
    Check(gg_micro_step_end(session_, &error), error);
  }
  void Step() const {
    gg_error error;
    Check(gg_step_begin(session_, nullptr, &error), error);
  }
  bool linked() const {
    gg_stats stats = GG_STATS_INIT;
    return gg_stats_get(session_, &stats, nullptr) == GG_OK && stats.linked == 1;
  }

 private:
  // A session that measures suppressed micro-steps alone ends in the middle of a window.
  static void Log(void* /*user*/, gg_severity /*severity*/, const char* reason, const char* message) {
    if (std::strcmp(reason, "open_window") != 0) std::fprintf(stderr, "bench: %s: %s\n", reason, message);
  }

  uint32_t count_;
  gg_session* session_ = nullptr;
};

inline gg_tensor Tensor(uint64_t count, float* gradient = nullptr) { return {"tensor", gradient, count, GG_FLOAT32, 0}; }

}  // namespace gradgate::bench

#endif  // GRADGATE_BENCH_C_SESSION_H_
