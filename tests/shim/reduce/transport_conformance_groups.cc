#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shim/reduce/file_store.h"
#include "shim/reduce/gloo/gloo_transport.h"
#include "shim/reduce/in_process_transport.h"
#include "shim/reduce/tcp_store.h"
#include "tests/shim/reduce/temporary_directory.h"
#include "tests/shim/reduce/transport_conformance.h"

namespace gradgate {
namespace {

constexpr int64_t kOpenNs = 60'000'000'000;

struct InProcessGroup : TransportGroup {
  explicit InProcessGroup(uint32_t world_size) : hub(world_size) {}
  ~InProcessGroup() override { ranks.clear(); }
  InProcessHub hub;
};

struct GlooGroupOfThreads : TransportGroup {
  // The first may serve the others, and would wait for them.
  ~GlooGroupOfThreads() override {
    while (!stores.empty()) stores.pop_back();
  }
  TemporaryDirectory directory;
  std::vector<std::unique_ptr<Store>> stores;
};

// Each rank opens on a thread of its own, with its own store.
bool OpenAll(GlooGroupOfThreads* group) {
  const auto world_size = static_cast<uint32_t>(group->stores.size());
  group->ranks.resize(world_size);
  std::vector<Status> statuses(world_size);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < world_size; ++r) {
    threads.emplace_back([&, r] {
      GlooOptions options;
      options.rank = r;
      options.world_size = world_size;
      options.store = group->stores[r].get();
      options.interface_name = "lo";
      options.group_name = "test";
      options.timeout_ns = kOpenNs;
      statuses[r] = GlooTransport::Open(options, &group->ranks[r]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return !testing::Test::HasFailure();
}

}  // namespace

std::unique_ptr<TransportGroup> OpenInProcess(uint32_t world_size) {
  auto group = std::make_unique<InProcessGroup>(world_size);
  for (uint32_t r = 0; r < world_size; ++r) group->ranks.push_back(group->hub.Open(r));
  return group;
}

std::unique_ptr<TransportGroup> OpenGlooOverFileStore(uint32_t world_size) {
  auto group = std::make_unique<GlooGroupOfThreads>();
  for (uint32_t r = 0; r < world_size; ++r) group->stores.push_back(std::make_unique<FileStore>(group->directory.path()));
  return OpenAll(group.get()) ? std::move(group) : nullptr;
}

std::unique_ptr<TransportGroup> OpenGlooOverTcpStore(uint32_t world_size) {
  auto group = std::make_unique<GlooGroupOfThreads>();
  uint16_t port = 0;
  for (uint32_t r = 0; r < world_size; ++r) {
    const Status status = TcpStore::Open("127.0.0.1", port, r == 0, kOpenNs, &group->stores.emplace_back(), &port);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return nullptr;
  }
  return OpenAll(group.get()) ? std::move(group) : nullptr;
}

}  // namespace gradgate
