// What `gradgatectl windows` and `gradgatectl watch` show: a row per window and rank. One thread per object.

#ifndef GRADGATE_CLIENT_CLI_WINDOW_VIEW_H_
#define GRADGATE_CLIENT_CLI_WINDOW_VIEW_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "client/cli/node_view.h"
#include "client/cli/table.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::cli {

// Columns: window, rank, kind, steps (brought/declared), min-max (micro-steps over all ranks), reds (reductions
// issued/intended), at (micro-step of the last reduction), late (reductions), bytes, exposed and wait in ms, flags.
class WindowRows {
 public:
  // `width`: of a line; 0: any.
  explicit WindowRows(size_t width = 0);

  void Add(const v1::Window& window);
  std::string Header() { return table_.Header(); }
  std::string TakeRows() { return table_.TakeRows(); }
  std::string All() { return table_.All(); }
  std::string Note() const { return table_.Note(); }

 private:
  Table table_;
};

// Problems, then all windows in the order of the answer.
std::string WindowsView(const v1::ListWindowsResponse& response, size_t width = 0);

// Shows a stream of messages: nodes that fall silent or answer again, rows as they come, what is wrong below them, the job's
// end.
class WatchView {
 public:
  explicit WatchView(size_t width = 0) : rows_(width) {}

  std::string Header();
  std::string Next(const v1::WatchWindowsResponse& message, absl::Time now);

 private:
  NodeNews nodes_;
  WindowRows rows_;
};

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_WINDOW_VIEW_H_
