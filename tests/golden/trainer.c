/* The trainer of the golden files: two ranks, 4 micro-steps a window, five full windows and a partial one of 2. It uses what
 * the C interface has had since 1.0, so that it builds against every version; record.py plays the daemon and keeps what it
 * publishes. argv: directory of the store, directory of shim.sock. Prints what this rank's library counted, NAME VALUE a line,
 * into counts.RANK. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gradgate/gradgate.h"

#define CHECK(call)                                                         \
  do {                                                                      \
    if ((call) != GG_OK) {                                                  \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, error.message); \
      exit(1);                                                              \
    }                                                                       \
  } while (0)
#define COUNT(name) fprintf(out, #name " %llu\n", (unsigned long long)stats.name)

enum { kElements = 96, kFullWindows = 5, kMicroSteps = 4, kPartial = 2 };

static gg_error error;

static void MicroStep(gg_session* session) {
  uint32_t boundary = 0;
  CHECK(gg_micro_step_begin(session, NULL, &boundary, &error));
  CHECK(gg_gradient_ready(session, 0, &error));
  CHECK(gg_micro_step_end(session, &error));
}

static void WriteCounts(gg_session* session, const char* path) {
  gg_stats stats = GG_STATS_INIT;
  CHECK(gg_stats_get(session, &stats, &error));
  FILE* out = fopen(path, "w");
  if (!out) exit(1);
  COUNT(micro_steps), COUNT(steps), COUNT(windows_full), COUNT(windows_partial), COUNT(windows_empty), COUNT(windows_late);
  COUNT(ballots), COUNT(reductions_intended), COUNT(reductions_issued), COUNT(reductions_suppressed), COUNT(reductions_late);
  COUNT(gradient_collectives), COUNT(gradient_bytes), COUNT(exposed_ns), COUNT(wait_ns), COUNT(micro_step_ns), COUNT(window_ns);
#if GG_ABI_MAJOR > 1 || GG_ABI_MINOR >= 3
  gg_policy policy = GG_POLICY_INIT;
  CHECK(gg_policy_get(session, &policy, &error));
  fprintf(out, "policy_version %llu\npolicy_adopted_window %llu\n", (unsigned long long)policy.version,
          (unsigned long long)policy.adopted_window);
#endif
  fclose(out);
}

static void Rank(uint32_t rank, const char* store_directory, const char* daemon_directory) {
  char url[512];
  snprintf(url, sizeof(url), "file://%s", store_directory);
  gg_store_options store_options = GG_STORE_OPTIONS_INIT;
  store_options.url = url;
  gg_store* store = NULL;
  CHECK(gg_store_open(&store_options, &store, &error));
  gg_gloo_options gloo = GG_GLOO_OPTIONS_INIT;
  gloo.rank = rank, gloo.world_size = 2, gloo.store = store, gloo.interface_name = "lo";
  gg_transport* transport = NULL;
  CHECK(gg_transport_open_gloo(&gloo, &transport, &error));

  float gradient[kElements] = {0};
  const gg_tensor tensor = {"weight", gradient, kElements, GG_FLOAT32, 0};
  gg_session_options options = GG_SESSION_OPTIONS_INIT;
  options.accumulate = kMicroSteps;
  options.tensors = &tensor, options.tensor_count = 1;
  options.store = store, options.transport = transport;
  options.job_name = "golden", options.local_rank = (int32_t)rank, options.daemon_dir = daemon_directory;
  gg_session* session = NULL;
  CHECK(gg_session_create(&options, &session, &error));
  const struct timespec pause = {0, 50 * 1000 * 1000}; /* so that each window reads what the daemon has sent */
  for (int window = 0; window < kFullWindows; ++window) {
    for (int micro_step = 0; micro_step < kMicroSteps; ++micro_step) MicroStep(session);
    CHECK(gg_step_begin(session, NULL, &error));
    nanosleep(&pause, NULL);
  }
  for (int micro_step = 0; micro_step < kPartial; ++micro_step) MicroStep(session);
  uint32_t flushed = 1;
  while (flushed) CHECK(gg_flush(session, 0, &flushed, NULL, &error));

  char path[512];
  snprintf(path, sizeof(path), "%s/counts.%u", daemon_directory, rank);
  WriteCounts(session, path);
  CHECK(gg_session_close(session, &error));
  gg_session_destroy(session);
  gg_transport_destroy(transport);
  gg_store_destroy(store);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  pid_t children[2];
  for (uint32_t rank = 0; rank < 2; ++rank) {
    children[rank] = fork();
    if (children[rank] == 0) {
      Rank(rank, argv[1], argv[2]);
      exit(0);
    }
  }
  int failed = 0;
  for (int rank = 0; rank < 2; ++rank) {
    int status = 0;
    failed |= waitpid(children[rank], &status, 0) != children[rank] || status != 0;
  }
  return failed;
}
