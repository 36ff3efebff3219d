#include "tests/daemon/store/etcd_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

#include "daemon/node/unique_fd.h"
#include "tests/daemon/store/await.h"

namespace gradgate::testing {
namespace {

std::string Find(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return folder + "/" + program;
  }
  return "";
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// etcd does not tell which port it got for 0. Not one that the kernel gives to clients: one that tries to connect to it while
// nobody listens there might be given that port, and connect to itself.
int FreePort() {
  std::random_device random;
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int first_of_clients = 32768;
  range >> first_of_clients;
  while (true) {
    const int port = 10000 + static_cast<int>(random() % static_cast<unsigned>(std::max(first_of_clients - 10000, 1000)));
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(port);
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return port;
  }
}

bool Accepts(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

bool EtcdServer::installed() { return !Find("etcd").empty() && !Find("etcdctl").empty(); }

EtcdServer::Ports EtcdServer::FreePorts() { return {FreePort(), FreePort()}; }

std::string EtcdServer::MembersOf(const std::vector<Ports>& ports) {
  std::string members;
  for (const Ports& one : ports) members += (members.empty() ? "" : ",") + NameOf(one) + "=" + one.PeerUrl();
  return members;
}

EtcdServer::EtcdServer(std::string scheme, std::vector<std::string> flags)
    : scheme_(std::move(scheme)), flags_(std::move(flags)) {
  for (int attempt = 0; attempt < 5 && !process_; ++attempt) {  // another process may take a port first
    ports_ = FreePorts();
    members_ = MembersOf({ports_});
    Start();
  }
  EXPECT_TRUE(running()) << Log();
}

std::vector<std::unique_ptr<EtcdServer>> EtcdServer::Cluster(size_t count) {
  std::vector<std::unique_ptr<EtcdServer>> members;
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::vector<Ports> ports(count);
    std::generate(ports.begin(), ports.end(), FreePorts);
    members.clear();
    for (const Ports& one : ports) members.emplace_back(new EtcdServer(one, MembersOf(ports)))->Launch();
    if (std::all_of(members.begin(), members.end(), [](const auto& member) { return member->AwaitServing(); })) return members;
  }
  ADD_FAILURE() << members[0]->Log();
  return members;
}

bool EtcdServer::Start() {
  Launch();
  return AwaitServing();
}

void EtcdServer::Launch() {
  const std::string client = scheme_ + "://" + endpoint();
  const std::string peer = ports_.PeerUrl();
  std::vector<std::string> arguments = {Find("etcd"),
                                        "--name=" + NameOf(ports_),
                                        "--data-dir=" + (directory_ / "data"),
                                        "--listen-client-urls=" + client,
                                        "--advertise-client-urls=" + client,
                                        "--listen-peer-urls=" + peer,
                                        "--initial-advertise-peer-urls=" + peer,
                                        "--initial-cluster=" + members_,
                                        "--logger=zap",
                                        "--log-outputs=" + (directory_ / "log")};
  arguments.insert(arguments.end(), flags_.begin(), flags_.end());
  std::filesystem::remove(directory_ / "log");
  process_ = std::make_unique<Process>(arguments);
}

bool EtcdServer::AwaitServing() {
  const auto has_ended = [this] {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(process_->pid()), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  };
  const auto serves = [this] { return Log().find("serving client traffic") != std::string::npos && Accepts(ports_.client); };
  if (!Await([&] { return serves() || has_ended(); }) || has_ended()) process_.reset();
  return running();
}

void EtcdServer::Kill() { process_.reset(); }
void EtcdServer::Freeze() { process_->Signal(SIGSTOP); }
void EtcdServer::Thaw() { process_->Signal(SIGCONT); }
void EtcdServer::Wipe() { std::filesystem::remove_all(directory_ / "data"); }

EtcdOptions EtcdServer::Options() const {
  EtcdOptions options;
  options.name = "etcd://" + endpoint();
  options.endpoints = {endpoint()};
  options.call_timeout = absl::Seconds(2);
  options.heartbeat_interval = absl::Milliseconds(300);
  options.heartbeat_timeout = absl::Milliseconds(700);
  options.lease_ttl = absl::Seconds(3);
  options.max_backoff = absl::Milliseconds(500);
  return options;
}

std::string EtcdServer::Ctl(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {Find("etcdctl"), "--endpoints=" + scheme_ + "://" + endpoint()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  Process ctl(all, {"ETCDCTL_API=3"});
  std::string said = ctl.ReadAll();
  EXPECT_EQ(ctl.Wait(), 0) << said;
  return said;
}

std::string EtcdServer::Log() const {
  std::ifstream file(directory_ / "log");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace gradgate::testing
