#include "examples/digits/options.h"

#include <CLI/CLI.hpp>

namespace digits {
namespace {

#ifndef DIGITS_DATA
#define DIGITS_DATA "data/digits.csv"
#endif

std::optional<Spot> ParseSpot(const std::string& option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  Spot spot;
  char rest = 0;
  unsigned long long window = 0;
  if (std::sscanf(text.c_str(), "%u:%llu%c", &spot.rank, &window, &rest) != 2) {
    throw CLI::ValidationError(option, "'" + text + "' is not RANK:WINDOW");
  }
  spot.window = window;
  return spot;
}

// Combinations that cannot work, each with its remedy.
void Validate(const Options& options) {
  if (options.exact && !options.float64) throw CLI::ValidationError("--exact", "needs --dtype float64");
  if (options.as_world > 0 && (options.rank || options.ranks > 1)) {
    throw CLI::ValidationError("--as-world", "is for one process: leave out --ranks and --rank");
  }
  if (options.rank && *options.rank >= options.world_size) {
    throw CLI::ValidationError(
        "--rank", std::to_string(*options.rank) + " is not below --world-size " + std::to_string(options.world_size));
  }
  if (options.rank && options.world_size > 1 && options.rendezvous.empty()) {
    throw CLI::ValidationError("--rendezvous", "is needed with --rank: file:///shared/new-directory or tcp://host:port");
  }
}

}  // namespace

const char* Name(gg_mode mode) { return mode == GG_MODE_EVERY_MICRO_STEP ? "every_micro_step" : "window"; }

const char* DivideName(gg_divide divide) {
  return divide == GG_DIVIDE_ITEMS ? "items" : divide == GG_DIVIDE_ACTIVE ? "active" : "world";
}

std::optional<Options> ParseOptions(int argc, char** argv, int* exit_status) {
  Options o;
  o.data = DIGITS_DATA;
  std::string dtype = "float32", mode = "window", windows = "variable", divide = "items", boundary = "looked-ahead";
  std::string daemon_dir, slow, drop, crash;
  bool no_daemon = false;
  CLI::App app("Trains a multi-layer perceptron on 8 × 8 images of hand-written digits, data-parallel, with gradgate.",
               "digits");
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);

  const auto ranks = app.add_option("--ranks", o.ranks, "Fork this many ranks on this machine")->check(CLI::Range(1, 64));
  app.add_option("--rank", o.rank, "Be this one rank of --world-size; start the others yourself, here or on other machines")
      ->excludes(ranks);
  app.add_option("--world-size", o.world_size, "Ranks in the job, with --rank")->check(CLI::Range(1, 1024));
  app.add_option("--rendezvous", o.rendezvous,
                 "Where ranks meet: file:///shared/new-directory, or tcp://host:port, served by rank 0");
  app.add_option("--as-world", o.as_world, "Alone, do the work of this many ranks: the reference that N ranks must equal")
      ->check(CLI::Range(1, 64));

  app.add_option("--data", o.data, "The CSV of images");
  app.add_option("--hidden", o.hidden, "Width of the first hidden layer; the second is half of it")->check(CLI::Range(2, 8192));
  app.add_option("--epochs", o.epochs, "Passes over the training images")->check(CLI::Range(1, 1000000));
  app.add_option("--batch", o.batch, "Images in a micro-batch")->check(CLI::Range(1, 1437));
  app.add_option("--lr", o.lr, "Learning rate")->check(CLI::PositiveNumber);
  app.add_option("--momentum", o.momentum, "Momentum")->check(CLI::Range(0.0, 0.9999));
  app.add_option("--seed", o.seed, "Of split, shuffle and weights; the same on all ranks");
  app.add_option("--dtype", dtype, "Of parameters and gradients")->check(CLI::IsMember({"float32", "float64"}));
  app.add_flag("--exact", o.exact, "Round each micro-batch's gradient so that all sums are exact (with --dtype float64)");

  app.add_option("--accumulate", o.accumulate, "Micro-steps per optimizer step")->check(CLI::Range(1, 4096));
  app.add_option("--mode", mode, "When gradients are reduced")->check(CLI::IsMember({"window", "every_micro_step"}));
  app.add_option("--windows", windows, "Whether ranks may bring different numbers of micro-steps")
      ->check(CLI::IsMember({"equal", "variable"}));
  app.add_option("--divide", divide, "items: the true mean over a window's images; world, active: a mean of ranks' means")
      ->check(CLI::IsMember({"items", "world", "active"}));
  app.add_option("--boundary", boundary, "looked-ahead: the loop says which micro-step is the last; count: the N-th is")
      ->check(CLI::IsMember({"looked-ahead", "count"}));
  app.add_flag("--strict", o.strict, "Ranks that differ are an error on all ranks");
  app.add_flag("--copy", o.copy, "Keep gradients in memory of the trainer's own instead of in gradgate's buckets");
  app.add_option("--bucket-bytes", o.bucket_bytes, "Upper bound of a bucket; 0: gradgate's default");
  app.add_option("--job", o.job, "Name that the daemon shows");
  app.add_option("--daemon-dir", daemon_dir, "Where the daemon's shim.sock is; default: GRADGATE_DIR, then the usual places");
  app.add_flag("--no-daemon", no_daemon, "Do not look for a daemon");
  app.add_option("--deadline", o.deadline_seconds, "Seconds to wait for other ranks, when starting and in each reduction")
      ->check(CLI::Range(0.1, 86400.0));

  app.add_option("--report", o.report, "Write counts, hashes and times to this file, as JSON");
  app.add_flag("--quiet", o.quiet, "No line per epoch");

  const char* const hooks = "Hooks for tests";
  app.add_option("--pause-at-window", o.pause_at_windows, "Rank 0 says so and waits for a line on stdin before these windows")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',')
      ->group(hooks);
  app.add_option("--throttle", o.throttle_ms, "Milliseconds to sleep in each micro-step")->group(hooks);
  app.add_option("--slow", slow, "RANK:MS, a rank that sleeps so many milliseconds in each micro-step, before it computes")
      ->group(hooks);
  app.add_option("--shorten", o.shorten, "A rank that leaves out its last micro-step of every window")->group(hooks);
  app.add_option("--drop", drop, "RANK:WINDOW, where a rank silently leaves out its last micro-step")->group(hooks);
  app.add_option("--crash", crash, "RANK:WINDOW, where a rank kills itself in the middle of a reduction")->group(hooks);
  app.add_flag("--fork-child", o.fork_child, "Each rank forks a child that lives until stdin ends")->group(hooks);

  try {
    app.parse(argc, argv);
    o.float64 = dtype == "float64";
    o.mode = mode == "window" ? GG_MODE_WINDOW : GG_MODE_EVERY_MICRO_STEP;
    o.windows = windows == "equal" ? GG_WINDOWS_EQUAL : GG_WINDOWS_VARIABLE;
    o.divide = divide == "items" ? GG_DIVIDE_ITEMS : divide == "active" ? GG_DIVIDE_ACTIVE : GG_DIVIDE_WORLD;
    o.look_ahead = boundary == "looked-ahead";
    if (app.count("--daemon-dir") > 0) o.daemon_dir = daemon_dir;
    if (no_daemon) o.daemon_dir = "";
    o.slow = ParseSpot("--slow", slow);
    o.drop = ParseSpot("--drop", drop);
    o.crash = ParseSpot("--crash", crash);
    Validate(o);
  } catch (const CLI::ParseError& error) {
    *exit_status = error.get_exit_code() == 0 ? app.exit(error) : (std::fprintf(stderr, "digits: %s\n", error.what()), 1);
    return std::nullopt;
  }
  return o;
}

}  // namespace digits
