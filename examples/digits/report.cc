#include "examples/digits/report.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace digits {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const Counted& c) {
  return {{"micro_steps", c.micro_steps},      {"steps", c.steps},
          {"windows_full", c.windows_full},    {"windows_partial", c.windows_partial},
          {"windows_empty", c.windows_empty},  {"items", c.items},
          {"reductions", c.reductions},        {"reductions_in_full_windows", c.reductions_in_full_windows},
          {"suppressed", c.suppressed},        {"gradient_collectives", c.gradient_collectives},
          {"gradient_bytes", c.gradient_bytes}};
}

Json ToJson(const gg_stats& s) {
  return {{"linked", s.linked != 0},
          {"micro_steps", s.micro_steps},
          {"steps", s.steps},
          {"windows_full", s.windows_full},
          {"windows_partial", s.windows_partial},
          {"windows_empty", s.windows_empty},
          {"windows_late", s.windows_late},
          {"windows_unstepped", s.windows_unstepped},
          {"windows_mismatched", s.windows_mismatched},
          {"windows_disagreed", s.windows_disagreed},
          {"ballots", s.ballots},
          {"refused", s.refused},
          {"warnings", s.warnings},
          {"items", s.items},
          {"reductions_intended", s.reductions_intended},
          {"reductions_issued", s.reductions_issued},
          {"reductions_suppressed", s.reductions_suppressed},
          {"reductions_late", s.reductions_late},
          {"gradient_collectives", s.gradient_collectives},
          {"gradient_bytes", s.gradient_bytes},
          {"exposed_ns", s.exposed_ns},
          {"wait_ns", s.wait_ns},
          {"micro_step_ns", s.micro_step_ns},
          {"window_ns", s.window_ns}};
}

Json ToJson(const gg_collective_stats& c) {
  return {{"intended", c.intended},
          {"gradient_issued", c.gradient_issued},
          {"ours_issued", c.ours_issued},
          {"other_issued", c.other_issued},
          {"gradient_bytes", c.gradient_bytes},
          {"ours_bytes", c.ours_bytes},
          {"other_bytes", c.other_bytes},
          {"tensors", c.tensors},
          {"completed", c.completed},
          {"gradient_completed", c.gradient_completed},
          {"failed", c.failed},
          {"unknown", c.unknown},
          {"duration_ns", c.duration_ns}};
}

void Write(const std::string& path, const Json& json) {
  std::ofstream file(path);
  file << json.dump(2) << "\n";
  if (!file.flush()) throw std::runtime_error("cannot write the report to " + path);
}

}  // namespace

void WriteRankReport(const std::string& path, const RankReport& report) {
  char hash[17];
  std::snprintf(hash, sizeof(hash), "%016" PRIx64, report.parameter_hash);
  Write(path, {{"rank", report.rank},
               {"world_size", report.world_size},
               {"parameter_count", report.parameter_count},
               {"parameter_hash", hash},
               {"bucket_count", report.bucket_count},
               {"held_out_accuracy", report.held_out_accuracy},
               {"train_seconds", report.train_seconds},
               {"counted", ToJson(report.counted)},
               {"stats", ToJson(report.stats)},
               {"collectives", {{"dp", {{"all_reduce", ToJson(report.all_reduce)}}}}}});
}

void MergeReports(const std::string& path, const Options& options, const std::vector<std::string>& rank_paths) {
  Json ranks = Json::array();
  for (const std::string& rank_path : rank_paths) {
    std::ifstream file(rank_path);
    ranks.push_back(Json::parse(file));
  }
  Write(path, {{"options",
                {{"job", options.job},
                 {"mode", Name(options.mode)},
                 {"accumulate", options.accumulate},
                 {"divide", DivideName(options.divide)},
                 {"hidden", options.hidden},
                 {"epochs", options.epochs},
                 {"batch", options.batch},
                 {"seed", options.seed},
                 {"dtype", options.float64 ? "float64" : "float32"},
                 {"exact", options.exact}}},
               {"ranks", ranks}});
}

}  // namespace digits
