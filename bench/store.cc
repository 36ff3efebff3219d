// Daemons that do nothing but keep a store: what one etcd and its watchers make of them.
//
//   bench_store ENDPOINT DAEMONS FIRST SECONDS WRITERS
//
// Opens DAEMONS stores, announces nodes/FIRST and on, and prints "ready" when all are announced and watch. Then it reads one
// line; WRITERS of its threads put keys of their own for SECONDS, and every store watches. Prints "puts N delays N median NS
// p99 NS max NS keys N reachable N", where a delay is from before a Put until a listener hears of it, by one clock: all
// processes on one machine.

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/etcd/etcd_store.h"

namespace gradgate::bench {
namespace {

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

class Watchers {
 public:
  void Heard(const Store& store, const std::vector<std::string>& keys) {
    const int64_t now_ns = NowNs();
    for (const std::string& key : keys) {
      if (key.compare(0, 9, "policies/") != 0) continue;
      for (const StoredValue& value : store.List(key)) {
        int64_t sent_ns = 0;
        if (value.key != key || value.value.size() != 200) continue;
        std::memcpy(&sent_ns, value.value.data(), sizeof(sent_ns));
        std::lock_guard<std::mutex> lock(mutex_);
        delays_.push_back(now_ns - sent_ns);
      }
    }
  }
  std::vector<int64_t> Sorted() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::sort(delays_.begin(), delays_.end());
    return delays_;
  }

 private:
  std::mutex mutex_;
  std::vector<int64_t> delays_;
};

int64_t WriteUntil(Store& store, const std::string& key, int64_t end_ns) {
  int64_t count = 0;
  while (NowNs() < end_ns) {
    std::string value(200, 'x');
    const int64_t now_ns = NowNs();
    std::memcpy(value.data(), &now_ns, sizeof(now_ns));
    if (store.Put(key, value, std::nullopt, absl::Now() + absl::Seconds(10)).ok()) ++count;
  }
  return count;
}

bool AllAnnounced(const std::vector<std::unique_ptr<Store>>& stores, int64_t key_count) {
  return std::all_of(stores.begin(), stores.end(), [&](const auto& store) {
    return store->Health().reachable && store->AnnounceStatus().ok() && store->Health().key_count >= key_count;
  });
}

int Main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: bench_store ENDPOINT DAEMONS FIRST SECONDS WRITERS\n");
    return 2;
  }
  const int daemons = std::atoi(argv[2]), first = std::atoi(argv[3]), seconds = std::atoi(argv[4]),
            writers = std::atoi(argv[5]);
  Watchers watchers;
  std::vector<std::unique_ptr<Store>> stores;
  for (int i = 0; i < daemons; ++i) {
    EtcdOptions options;
    options.endpoints = {argv[1]};
    options.name = argv[1];
    auto store = OpenEtcdStore(options);
    if (!store.ok()) return 1;
    stores.push_back(*std::move(store));
    Store* raw = stores.back().get();
    raw->OnChange([raw, &watchers](const std::vector<std::string>& keys) { watchers.Heard(*raw, keys); });
    raw->Announce(absl::StrCat("nodes/", first + i), std::string(100, 'n'));
  }
  while (!AllAnnounced(stores, daemons)) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::printf("ready\n");
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
  const int64_t end_ns = NowNs() + seconds * 1'000'000'000LL;
  std::atomic<int64_t> puts{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < writers; ++i) {
    threads.emplace_back(
        [&, i] { puts += WriteUntil(*stores[i % stores.size()], absl::StrCat("policies/", first, "/", i), end_ns); });
  }
  for (std::thread& thread : threads) thread.join();
  while (NowNs() < end_ns + 3'000'000'000LL)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // what is still on its way
  const std::vector<int64_t> delays = watchers.Sorted();
  const auto at = [&delays](double part) {
    return delays.empty() ? 0
                          : delays[std::min(delays.size() - 1, static_cast<size_t>(part * static_cast<double>(delays.size())))];
  };
  const int64_t reachable =
      std::count_if(stores.begin(), stores.end(), [](const auto& store) { return store->Health().reachable; });
  std::printf("puts %lld delays %zu median %lld p99 %lld max %lld keys %lld reachable %lld\n", static_cast<long long>(puts),
              delays.size(), static_cast<long long>(at(0.5)), static_cast<long long>(at(0.99)), static_cast<long long>(at(1.0)),
              static_cast<long long>(stores[0]->Health().key_count), static_cast<long long>(reachable));
  std::fflush(stdout);
  std::_Exit(0);  // the leases run out by themselves
}

}  // namespace
}  // namespace gradgate::bench

int main(int argc, char** argv) { return gradgate::bench::Main(argc, argv); }
