// What a hostile client can send to a daemon.

#ifndef GRADGATE_TESTS_DAEMON_HOSTILE_H_
#define GRADGATE_TESTS_DAEMON_HOSTILE_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "daemon/node/rejection.h"
#include "daemon/node/unique_fd.h"
#include "proto/shm/stats_page.h"

namespace gradgate::testing {

// A descriptor that is no stats page, and why it must be refused.
struct WrongDescriptor {
  std::string what;
  UniqueFd fd;
  Rejection reason;
};
std::vector<WrongDescriptor> WrongDescriptors();

// A TCP socket whose last close(2) waits for an hour. Close it last in another process, or while another still has it: a close
// in the test would wait too.
struct LingeringSocket {
  LingeringSocket();
  UniqueFd fd;
  UniqueFd peer;  // to be closed after it
};

// Overwrites one random word of the page: any bits, small numbers, magics, sequences near those that are there.
void ScribbleWord(page::StatsPage& page, std::mt19937_64& random);

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_HOSTILE_H_
