// What gradgatectl top shows, as lines: the jobs, and of the selected one what the doctor says and its ranks. Pure functions;
// any thread.
//
// What is not known is "-". Trouble has a mark and words; colour and weight only repeat them.

#ifndef GRADGATE_CLIENT_CLI_TOP_VIEW_H_
#define GRADGATE_CLIENT_CLI_TOP_VIEW_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/top_model.h"
#include "client/cli/top_text.h"

namespace gradgate::cli {

enum class TopSort { kRank, kTrouble, kSlowest, kExposed };
inline constexpr int kTopSortCount = 4;
const char* TopSortName(TopSort sort);

// Where a person is in it.
struct TopPlace {
  std::string selected;  // TopKey; empty: as TopModel::Selected chooses
  TopSort sort = TopSort::kRank;
  size_t first_rank = 0;  // shown, in the order of `sort`
  bool paused = false;
};

struct TopFrame {
  std::string address;  // of the daemon
  absl::Time now;
  absl::Duration interval;
  size_t rows = 0;     // 0: all that there is, without the help line
  size_t columns = 0;  // 0: any
  Charset charset = Charset::kAscii;
};

struct TopLine {
  enum class Style { kPlain, kTitle, kHead, kSelected, kTrouble, kFaint };
  std::string text;  // Cells, no wider than the frame
  Style style = Style::kPlain;

  bool operator==(const TopLine& other) const { return text == other.text && style == other.style; }
};

// At most `frame.rows` of them. `place` is put right where the job or the ranks that it names are gone.
std::vector<TopLine> TopView(const TopModel& model, const TopFrame& frame, TopPlace* place);

// How many ranks a page of it has.
size_t TopPageRanks(const TopFrame& frame);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TOP_VIEW_H_
