// A stats page written by a test, straight from the layout: what a trainer would send, or what a hostile one would.
//
// Thread class: one thread per object; the page may be read from others.

#ifndef GRADGATE_TESTS_DAEMON_FAKE_PAGE_H_
#define GRADGATE_TESTS_DAEMON_FAKE_PAGE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/node/page_mapping.h"
#include "daemon/node/unique_fd.h"
#include "proto/shm/stats_page.h"

namespace gradgate::testing {

struct FakeIdentity {
  std::string job_name = "job";
  std::string run_id_bytes = std::string(16, '\x11');  // 16 bytes
  uint32_t attempt = 0;
  uint32_t rank = 0;
  uint32_t world_size = 2;
  int64_t wall_time_ns = 1'700'000'000'000'000'000;
};

class FakePage {
 public:
  struct Options {
    size_t bytes = sizeof(page::StatsPage);
    int seals = -1;        // −1: shrink and grow
    bool sealable = true;  // false: made without MFD_ALLOW_SEALING
  };

  // A complete page of a rank that has done nothing yet.
  explicit FakePage(const FakeIdentity& identity) : FakePage(identity, Options()) {}
  FakePage(const FakeIdentity& identity, const Options& options);
  ~FakePage();
  FakePage(const FakePage&) = delete;
  FakePage& operator=(const FakePage&) = delete;

  int fd() const { return fd_.get(); }
  page::StatsPage& page() { return *page_; }

  // Maps it as the daemon would. Fails the test when it cannot.
  std::unique_ptr<PageMapping> Map() const;

  // The record that CloseWindow publishes for window `index`: full, 4 micro-steps, one reduction.
  static page::WindowRecord MakeRecord(uint64_t index);

  // Publishes the next window, and counts it.
  void CloseWindow();
  void CloseWindow(const page::WindowRecord& record);
  // As a writer killed in the middle: the sequence stays odd. The ring has moved on when `counted`.
  void TearWindow(bool counted = true);

  // Publishes the next event.
  void AddEvent(EventKind kind, uint64_t value = 0);
  // Reserves a slot and never writes it.
  void ReserveEvent();

 private:
  UniqueFd fd_;
  size_t bytes_;
  page::StatsPage* page_;  // null for a short page
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_FAKE_PAGE_H_
