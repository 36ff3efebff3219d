// A page that a shim wrote, as the daemon's reader sees it.
//
// Apart, since shim and daemon use some names for different things.

#ifndef GRADGATE_TESTS_FUZZ_PAGE_CHECK_H_
#define GRADGATE_TESTS_FUZZ_PAGE_CHECK_H_

#include "proto/shm/stats_page.h"

namespace gradgate::fuzz {

// Header and identity are taken, every window and event is read and valid, and windows are as many as counted. For pages whose
// rings have not wrapped.
void CheckPage(const page::StatsPage& page);

}  // namespace gradgate::fuzz

#endif  // GRADGATE_TESTS_FUZZ_PAGE_CHECK_H_
