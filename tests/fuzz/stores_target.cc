// The rendezvous stores: the TCP server against clients that send anything in any pieces, the TCP client against a server that
// answers anything, and the file store with any keys. Loopback only.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "daemon/node/unique_fd.h"
#include "shim/reduce/file_store.h"
#include "shim/reduce/store_limits.h"
#include "shim/reduce/tcp_store.h"
#include "shim/reduce/tcp_store_server.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

constexpr int kMaxSteps = 12;
constexpr int64_t kSecond = 1'000'000'000;

enum Mode : unsigned { kServer, kClient, kFiles, kModeCount };

// Closes without leaving the port in TIME_WAIT, of which a machine has only so many.
void Abort(UniqueFd& fd) {
  if (!fd) return;
  const linger now{1, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  fd.reset();
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

UniqueFd Connect(uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  FUZZ_CHECK(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, std::to_string(errno));
  const timeval limit{10, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  return fd;
}

std::string Request(uint8_t op, const std::string& key, const std::string& value) {
  const auto body = static_cast<uint32_t>(2 + key.size() + value.size());
  return SeedBuilder().Number(body).Byte(op).Byte(static_cast<unsigned>(key.size())).Raw(key).Raw(value);
}

// A good client beside the bad ones: it is answered, whatever they sent, and after two answers their bytes were read.
void CheckServes(const UniqueFd& witness) {
  const std::string request = Request(kTcpStoreOpSet, "witness", "here");
  for (int i = 0; i < 2; ++i) {
    FUZZ_CHECK(send(witness.get(), request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()), "");
    char reply[5];
    ssize_t got;
    do {
      got = recv(witness.get(), reply, sizeof(reply), MSG_WAITALL);
    } while (got < 0 && errno == EINTR);  // the fuzzer's own alarm
    FUZZ_CHECK(got == sizeof(reply),
               "the good client got no answer: " + std::to_string(got) + ", errno " + std::to_string(errno));
    FUZZ_CHECK(reply[0] == 1 && reply[4] == 0, "the good client's request failed");
  }
}

void AgainstServer(Input& in) {
  std::unique_ptr<TcpStoreServer> server;
  const Status listening = TcpStoreServer::Listen("127.0.0.1", 0, &server);
  FUZZ_CHECK(listening.ok(), listening.message());
  UniqueFd witness = Connect(server->port());
  UniqueFd clients[3];
  for (int i = 0; i < kMaxSteps && !in.empty(); ++i) {
    const uint8_t step = in.Byte();
    UniqueFd& client = clients[step % 3];
    if (!client) client = Connect(server->port());
    switch (step / 3 % 4) {
      case 0: {
        const std::string bytes = in.Text();
        (void)!send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
      }
      case 1: {
        const std::string key = in.Bytes(in.Below(4)), value = in.Bytes(in.Below(16));
        const std::string bytes = Request(in.Coin() ? kTcpStoreOpSet : kTcpStoreOpGet, key, value);
        (void)!send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
      }
      case 2:
        CheckServes(witness);
        break;
      case 3:
        in.Coin() ? Abort(client) : (void)shutdown(client.get(), SHUT_WR);
        break;
    }
  }
  CheckServes(witness);
  for (UniqueFd& client : clients) Abort(client);
  Abort(witness);
}

class HostileServer {
 public:
  HostileServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(listener_.get(), 64) != 0 ||
        getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      std::abort();
    }
    port_ = ntohs(address.sin_port);
  }

  uint16_t port() const { return port_; }
  // The latest connection, if one waits.
  UniqueFd Accept() { return UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }

 private:
  UniqueFd listener_;
  uint16_t port_;
};

// Each answer lies ready before the question, and ends the connection or not.
void AgainstClient(Input& in) {
  static auto* const server = new HostileServer;
  std::unique_ptr<Store> store;
  const Status opened = TcpStore::Open("127.0.0.1", server->port(), false, kSecond, &store);
  FUZZ_CHECK(opened.ok(), opened.message());
  UniqueFd connection = server->Accept();
  for (int i = 0; i < 3 && !in.empty(); ++i) {
    if (UniqueFd fresh = server->Accept()) {
      Abort(connection);
      connection = std::move(fresh);
    }
    std::string answer;
    if (in.Coin()) {
      const std::string body = in.Text();
      answer = SeedBuilder().Number(static_cast<uint32_t>(body.size())).Raw(body);
    } else {
      answer = in.Text();
    }
    if (connection) (void)!send(connection.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    const bool ends = in.Coin();
    if (connection && ends) shutdown(connection.get(), SHUT_WR);
    std::string value;
    // What is there is read, what is not there is not waited for.
    const Status status = in.Coin() ? store->Get("key", 1, &value) : store->Set("key", "value", 1);
    if (status.ok()) FUZZ_CHECK(value.size() <= kTcpStoreMaxBodyBytes, std::to_string(value.size()));
    if (!status.ok()) FUZZ_CHECK(!status.message().empty(), "an error without a message");
  }
  Abort(connection);
  store.reset();
  while (UniqueFd left = server->Accept()) Abort(left);
}

// Keys become file names: none leaves the directory, and none is mistaken for another.
void WithFiles(Input& in) {
  const std::string directory = ScratchDirectory() + "/store";
  FileStore store(directory);
  const std::string key = in.Text(), value = in.Text(), other = in.Text();
  const Status set = store.Set(key, value, 1);
  FUZZ_CHECK(set.ok() == IsStoreKey(key), set.message());
  if (set.ok()) {
    std::string read;
    const Status got = store.Get(key, 1, &read);
    FUZZ_CHECK(got.ok() && read == value, got.message());
    if (other != key) FUZZ_CHECK(!store.Get(other, 1, &read).ok(), other + " is " + key);
    size_t beside = 0;
    for (const auto& entry : std::filesystem::directory_iterator(ScratchDirectory())) beside += entry.path() != directory;
    FUZZ_CHECK(beside == 0, "a file outside of the store's directory");
  }
  std::filesystem::remove_all(directory);
}

}  // namespace

std::vector<std::string> Seeds() {
  const auto send = [](unsigned client, const std::string& bytes) {
    return std::string(SeedBuilder().Byte(client).Text(bytes));
  };
  std::vector<std::string> seeds;
  seeds.push_back(SeedBuilder()
                      .Byte(kServer)
                      .Raw(send(0, Request(kTcpStoreOpSet, "a", "1")))
                      .Raw(send(1, Request(kTcpStoreOpGet, "a", ""))));
  seeds.push_back(SeedBuilder()
                      .Byte(kServer)
                      .Raw(send(1, Request(kTcpStoreOpGet, "a", "")))
                      .Byte(6)
                      .Raw(send(0, Request(kTcpStoreOpSet, "a", "1")))
                      .Byte(9)
                      .Byte(1));
  const std::string whole = Request(kTcpStoreOpSet, "key", "value");
  seeds.push_back(SeedBuilder()
                      .Byte(kServer)
                      .Raw(send(0, whole.substr(0, 3)))
                      .Byte(6)
                      .Raw(send(0, whole.substr(3, 4)))
                      .Byte(6)
                      .Raw(send(0, whole.substr(7))));
  seeds.push_back(SeedBuilder()
                      .Byte(kServer)
                      .Raw(send(0, std::string(8, '\xff')))
                      .Raw(send(1, std::string(9, '\0')))
                      .Raw(send(2, whole + whole)));
  seeds.push_back(SeedBuilder().Byte(kServer).Raw(send(2, Request(kTcpStoreOpGet, "a", ""))).Byte(2 + 9).Byte(1));
  const auto answer = [](unsigned framed, const std::string& text, unsigned ends, unsigned get) {
    return std::string(SeedBuilder().Byte(framed).Text(text).Byte(ends).Byte(get));
  };
  seeds.push_back(SeedBuilder().Byte(kClient).Raw(answer(1, std::string("\0value", 6), 0, 1)));
  seeds.push_back(SeedBuilder().Byte(kClient).Raw(answer(1, std::string("\5nothing", 8), 1, 1)).Raw(answer(1, "", 1, 0)));
  seeds.push_back(SeedBuilder().Byte(kClient).Raw(answer(0, std::string(4, '\xff'), 0, 1)).Raw(answer(0, "\3\0", 1, 0)));
  for (const char* key : {"hello/0", "../../x", "k.%2e", "a b", ""}) {
    seeds.push_back(SeedBuilder().Byte(kFiles).Text(key).Text("value").Text("hello%2f0"));
  }
  seeds.push_back(SeedBuilder().Byte(kFiles).Text(std::string(200, '/')).Text("v").Text(std::string(199, '/')));
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradgate::fuzz::Input in(data, size);
  switch (in.Below(gradgate::fuzz::kModeCount)) {
    case gradgate::fuzz::kServer:
      gradgate::fuzz::AgainstServer(in);
      break;
    case gradgate::fuzz::kClient:
      gradgate::fuzz::AgainstClient(in);
      break;
    case gradgate::fuzz::kFiles:
      gradgate::fuzz::WithFiles(in);
      break;
  }
  return 0;
}
