// What the command line says.

#ifndef GRADGATE_EXAMPLES_DIGITS_OPTIONS_H_
#define GRADGATE_EXAMPLES_DIGITS_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradgate/gradgate.h"

namespace digits {

// A rank and a window of the run, counted over epochs.
struct Spot {
  uint32_t rank = 0;
  uint64_t window = 0;
};

struct Options {
  // Ranks.
  uint32_t ranks = 1;            // forked here, unless --rank is given
  std::optional<uint32_t> rank;  // this process is one rank of world_size
  uint32_t world_size = 1;
  std::string rendezvous;
  uint32_t as_world = 0;  // one process does the work of so many ranks; 0: no

  // Model and data.
  std::string data;
  uint32_t hidden = 128;
  uint32_t epochs = 10;
  uint32_t batch = 8;
  double lr = 0.05;
  double momentum = 0.9;
  uint64_t seed = 1;
  bool float64 = false;
  bool exact = false;

  // Synchronisation.
  uint32_t accumulate = 4;
  gg_mode mode = GG_MODE_WINDOW;
  gg_windows windows = GG_WINDOWS_VARIABLE;
  gg_divide divide = GG_DIVIDE_ITEMS;
  bool strict = false;
  bool look_ahead = true;  // false: the boundary is the accumulate-th micro-step, and a partial window is reduced at the step
  bool copy = false;
  uint64_t bucket_bytes = 0;
  std::string job = "digits";
  std::optional<std::string> daemon_dir;
  double deadline_seconds = 60;

  // Output.
  std::string report;
  bool quiet = false;

  // Hooks for tests.
  std::vector<uint64_t> pause_at_windows;
  uint32_t throttle_ms = 0;
  std::optional<Spot> slow;         // as RANK:MS: that rank sleeps so long in each micro-step, before it computes
  std::optional<uint32_t> shorten;  // this rank leaves out its last micro-step of every window
  std::optional<Spot> drop;         // leaves out its last micro-step of that window
  std::optional<Spot> crash;        // SIGKILLs itself in the last backward of that window
  bool fork_child = false;          // each rank forks a child that lives until stdin ends

  std::chrono::nanoseconds deadline() const { return std::chrono::nanoseconds(static_cast<int64_t>(deadline_seconds * 1e9)); }
};

// Parses the command line. Returns nullopt when nothing is left to do, with the exit status in *exit_status: help was asked
// for, or an option is wrong and stderr says which.
std::optional<Options> ParseOptions(int argc, char** argv, int* exit_status);

// As the options are spelt.
const char* Name(gg_mode mode);
const char* DivideName(gg_divide divide);

}  // namespace digits

#endif  // GRADGATE_EXAMPLES_DIGITS_OPTIONS_H_
