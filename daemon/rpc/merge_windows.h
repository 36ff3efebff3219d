// Makes one page of a job's windows from the pages of several nodes. Pure functions.
//
// Each node is asked for as many windows as the page is to have, from the same index on, in the same order. The first so many
// indices of all of them are then known on every node that has them: a node whose page ends before such an index would have had
// to list as many before it. A node may list fewer, and say that there is more; then the page ends where the first such node
// does.
//
//   node a  0 1 2 3 | more      page of 4: 0 1 2 3, the next begins at 4
//   node b      2 3 4 5 | more
//
// A window is complete if every node that has it says so, and those that do not have it closed it before they forgot it.

#ifndef GRADGATE_DAEMON_RPC_MERGE_WINDOWS_H_
#define GRADGATE_DAEMON_RPC_MERGE_WINDOWS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/rpc/page_token.h"
#include "daemon/rpc/parts.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate {

// How many windows a page has: as many as are asked for, less where so many ranks would make the answer too large. At least 1.
size_t WindowsPerPage(size_t page_size, int64_t world_size);

// What each node is to be asked for: the page of `request` as an index to begin at. INVALID_ARGUMENT: as CheckPageSize and
// PageTokens, or a negative index.
absl::StatusOr<v1::ListWindowsRequest> PartOfWindowsPage(const v1::ListWindowsRequest& request, const PageTokens& tokens);

// Whether `part` can answer `asked`. DATA_LOSS names what is wrong.
absl::Status CheckWindows(const v1::ListWindowsResponse& part, const v1::ListWindowsRequest& asked);

// `request` as the caller gave it. INVALID_ARGUMENT: its page_token is of another job or order.
absl::StatusOr<v1::ListWindowsResponse> MergeWindows(Parts<v1::ListWindowsResponse> parts,
                                                     const v1::ListWindowsRequest& request, const PageTokens& tokens);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_MERGE_WINDOWS_H_
