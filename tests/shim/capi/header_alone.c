/* gradgate.h is enough by itself, in C99 and in C++. */
#include "gradgate/gradgate.h"

int gg_header_alone(void);

int gg_header_alone(void) {
  gg_session_options session = GG_SESSION_OPTIONS_INIT;
  gg_store_options store = GG_STORE_OPTIONS_INIT;
  gg_store_callbacks callbacks = GG_STORE_CALLBACKS_INIT;
  gg_gloo_options gloo = GG_GLOO_OPTIONS_INIT;
  gg_micro_step micro_step = GG_MICRO_STEP_INIT;
  gg_window window = GG_WINDOW_INIT;
  gg_stats stats = GG_STATS_INIT;
  gg_collective_stats collectives = GG_COLLECTIVE_STATS_INIT;
  return session.struct_size && store.struct_size && callbacks.struct_size && gloo.struct_size && micro_step.struct_size &&
         window.struct_size && stats.struct_size && collectives.struct_size;
}
