// A real etcd on loopback, with a directory of its own. Tests skip where etcd or etcdctl is not installed.
//
// Thread class: one thread per object. The destructor kills it.

#ifndef GRADGATE_TESTS_DAEMON_STORE_ETCD_SERVER_H_
#define GRADGATE_TESTS_DAEMON_STORE_ETCD_SERVER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/store/etcd/etcd_options.h"
#include "tests/daemon/main/process.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate::testing {

class EtcdServer {
 public:
  static bool installed();

  // Runs it, with more flags if need be, and waits until it answers. `scheme` is http or https; the latter needs flags.
  explicit EtcdServer(std::string scheme = "http", std::vector<std::string> flags = {});

  // Members of one etcd, all of them running.
  static std::vector<std::unique_ptr<EtcdServer>> Cluster(size_t count);

  bool running() const { return process_ != nullptr; }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(ports_.client); }
  // Options with short patience, so that tests are quick.
  EtcdOptions Options() const;

  void Kill();
  // On the same ports, with the same data. A member of a cluster answers only where most of them run.
  bool Start();
  // Does not wait until it answers.
  void Launch();
  bool AwaitServing();
  void Freeze();
  void Thaw();
  // Its data; not while it runs.
  void Wipe();

  // Runs etcdctl; what it prints.
  std::string Ctl(const std::vector<std::string>& arguments);
  // Its log, for messages of failed tests.
  std::string Log() const;

 private:
  struct Ports {
    int client = 0;
    int peer = 0;
    std::string PeerUrl() const { return "http://127.0.0.1:" + std::to_string(peer); }
  };
  static Ports FreePorts();
  static std::string NameOf(const Ports& ports) { return "m" + std::to_string(ports.client); }
  static std::string MembersOf(const std::vector<Ports>& ports);

  EtcdServer(const Ports& ports, std::string members) : scheme_("http"), ports_(ports), members_(std::move(members)) {}

  const std::string scheme_;
  const std::vector<std::string> flags_;
  TempDir directory_;
  Ports ports_;
  std::string members_;  // of its cluster: NAME=URL,NAME=URL
  std::unique_ptr<Process> process_;
};

// Skips the test that it stands in.
#define GG_REQUIRE_ETCD()                                                                                   \
  if (!::gradgate::testing::EtcdServer::installed()) {                                                      \
    GTEST_SKIP() << "etcd and etcdctl are not installed: ./dev setup gets them; nothing of etcd is tested"; \
  }

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_STORE_ETCD_SERVER_H_
