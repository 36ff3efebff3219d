/* A plain C program that loads the library as a plugin host would, and runs a window. argv[1]: path of libgradgate.so. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "gradgate/gradgate.h"

#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) {                                                          \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, error.message); \
      return 1;                                                                  \
    }                                                                            \
  } while (0)

#define LOAD(name)                                      \
  do {                                                  \
    void* symbol = dlsym(library, #name);               \
    if (!symbol) {                                      \
      fprintf(stderr, "no %s: %s\n", #name, dlerror()); \
      return 1;                                         \
    }                                                   \
    memcpy(&f.name, &symbol, sizeof(symbol));           \
  } while (0)

int main(int argc, char** argv) {
  struct {
    uint32_t (*gg_abi_version)(void);
    gg_status_t (*gg_session_create)(const gg_session_options*, gg_session**, gg_error*);
    gg_status_t (*gg_session_gradient)(gg_session*, uint32_t, void**, gg_error*);
    gg_status_t (*gg_micro_step_begin)(gg_session*, const gg_micro_step*, uint32_t*, gg_error*);
    gg_status_t (*gg_gradient_ready)(gg_session*, uint32_t, gg_error*);
    gg_status_t (*gg_micro_step_end)(gg_session*, gg_error*);
    gg_status_t (*gg_step_begin)(gg_session*, gg_window*, gg_error*);
    gg_status_t (*gg_stats_get)(gg_session*, gg_stats*, gg_error*);
    gg_status_t (*gg_session_close)(gg_session*, gg_error*);
    void (*gg_session_destroy)(gg_session*);
  } f;
  gg_error error = {0, 0, ""};
  gg_session_options options = GG_SESSION_OPTIONS_INIT;
  gg_window window = GG_WINDOW_INIT;
  gg_stats stats = GG_STATS_INIT;
  gg_tensor tensor = {"w", NULL, 2, GG_FLOAT32, 0};
  gg_session* session = NULL;
  void* gradient = NULL;
  uint32_t boundary = 9;
  int i;

  void* library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) {
    fprintf(stderr, "dlopen: %s\n", argc > 1 ? dlerror() : "no path given");
    return 1;
  }
  LOAD(gg_abi_version);
  LOAD(gg_session_create);
  LOAD(gg_session_gradient);
  LOAD(gg_micro_step_begin);
  LOAD(gg_gradient_ready);
  LOAD(gg_micro_step_end);
  LOAD(gg_step_begin);
  LOAD(gg_stats_get);
  LOAD(gg_session_close);
  LOAD(gg_session_destroy);

  CHECK(f.gg_abi_version() >> 16 == GG_ABI_MAJOR);
  options.accumulate = 2;
  options.tensors = &tensor;
  options.tensor_count = 1;
  options.daemon_dir = "";
  CHECK(f.gg_session_create(&options, &session, &error) == GG_OK);
  CHECK(f.gg_session_gradient(session, 0, &gradient, &error) == GG_OK);
  for (i = 0; i < 2; ++i) {
    CHECK(f.gg_micro_step_begin(session, NULL, &boundary, &error) == GG_OK);
    CHECK(boundary == (uint32_t)(i == 1));
    ((float*)gradient)[0] += 1.5f;
    CHECK(f.gg_gradient_ready(session, 0, &error) == GG_OK);
    CHECK(f.gg_micro_step_end(session, &error) == GG_OK);
  }
  CHECK(f.gg_step_begin(session, &window, &error) == GG_OK);
  CHECK(window.kind == GG_WINDOW_FULL && window.micro_steps == 2);
  CHECK(((float*)gradient)[0] == 3.0f);
  CHECK(f.gg_stats_get(session, &stats, &error) == GG_OK);
  CHECK(stats.steps == 1 && stats.micro_steps == 2);
  CHECK(f.gg_micro_step_end(session, &error) == GG_FAILED_PRECONDITION);
  CHECK(strstr(error.message, "no micro-step has begun") != NULL);
  CHECK(f.gg_session_close(session, &error) == GG_OK);
  f.gg_session_destroy(session);
  dlclose(library);
  printf("ok\n");
  return 0;
}
