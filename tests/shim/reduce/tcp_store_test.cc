#include "shim/reduce/tcp_store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

constexpr int64_t kLong = 30'000'000'000;
constexpr int64_t kShort = 50'000'000;

std::unique_ptr<Store> Serve(uint16_t* port, const std::string& host = "127.0.0.1") {
  std::unique_ptr<Store> store;
  const Status status = TcpStore::Open(host, *port, true, kLong, &store, port);
  EXPECT_TRUE(status.ok()) << status.message();
  return store;
}

// Bytes as they are, to see how the server takes them.
class RawClient {
 public:
  explicit RawClient(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const timeval limit = {20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  ~RawClient() { ::close(fd_); }
  void Send(const std::string& bytes) {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  std::string Receive(size_t size) {
    std::string bytes(size, '\0');
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(0, ::recv(fd_, bytes.data(), size, MSG_WAITALL))));
    return bytes;
  }
  bool IsClosed() {
    char byte;
    const ssize_t n = ::recv(fd_, &byte, 1, 0);
    return n == 0 || (n < 0 && errno == ECONNRESET);
  }

 private:
  const int fd_;
};

TEST(TcpStore, ServesOnWhileClientsAreThereAfterItsRankHasEnded) {
  uint16_t port = 0;
  std::unique_ptr<Store> server = Serve(&port);
  ASSERT_TRUE(server->Set("why", "rank 2 is missing", kLong).ok());
  std::unique_ptr<Store> client;
  ASSERT_TRUE(TcpStore::Open("127.0.0.1", port, false, kLong, &client).ok());
  std::thread ending([&server] { server.reset(); });
  std::string value;
  EXPECT_TRUE(client->Set("late", "x", kLong).ok());
  EXPECT_TRUE(client->Get("why", kLong, &value).ok());
  EXPECT_EQ(value, "rank 2 is missing");
  client.reset();
  ending.join();
}

TEST(TcpStore, TheBytesAreThoseOfTheHeader) {
  uint16_t port = 0;
  const auto store = Serve(&port);
  RawClient client(port);
  for (const char c : std::string("\x06\0\0\0\x01\x03key\x2a", 10)) client.Send(std::string(1, c));
  EXPECT_EQ(client.Receive(5), std::string("\x01\0\0\0\0", 5));
  client.Send(std::string("\x05\0\0\0\x02\x03key", 9));
  EXPECT_EQ(client.Receive(6), std::string("\x02\0\0\0\0\x2a", 6));
}

TEST(TcpStore, AMalformedRequestClosesItsConnectionAlone) {
  uint16_t port = 0;
  const auto store = Serve(&port);
  ASSERT_TRUE(store->Set("key", "value", kLong).ok());
  const std::vector<std::string> requests = {
      std::string("\x00\0\0\0", 4),                                 // no body
      std::string("\x01\0\0\0\x01", 5),                             // too short
      std::string("\xff\xff\xff\xff", 4),                           // too long
      std::string("\xcb\x00\x01\x00", 4),                           // one byte too long
      std::string("\x05\0\0\0\x03\x03key", 9),                      // no such op
      std::string("\x02\0\0\0\x02\x00", 6),                         // empty key
      std::string("\x03\0\0\0\x02\x09k", 7),                        // key beyond the body
      std::string("\x04\0\0\0\x02\x02k ", 8),                       // a space in the key
      std::string("\x06\0\0\0\x02\x03keyv", 10),                    // a get with a value
      std::string("\x05\0\0\0\x02\x03key\x05\0\0\0", 13),           // two requests at once
      std::string("\xcc\0\0\0\x02\xc9", 6) + std::string(202, 'k')  // key of 201
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    RawClient client(port);
    client.Send(requests[i]);
    EXPECT_TRUE(client.IsClosed()) << "request " << i;
  }
  std::string value;
  EXPECT_TRUE(store->Get("key", kLong, &value).ok());
  EXPECT_EQ(value, "value");
}

TEST(TcpStore, AnythingSentBeforeTheReplyClosesTheConnection) {
  uint16_t port = 0;
  const auto store = Serve(&port);
  RawClient client(port);
  client.Send(std::string("\x05\0\0\0\x02\x03key", 9));
  std::string value;
  EXPECT_EQ(store->Get("key", kShort, &value).code(), Code::kNotFound);  // the server has read the request above by now
  client.Send("x");
  EXPECT_TRUE(client.IsClosed());
  EXPECT_TRUE(store->Set("key", "value", kLong).ok()) << "the waiting get is forgotten";
}

TEST(TcpStore, NobodyServingIsNamedWithHostAndPort) {
  uint16_t port = 0;
  Serve(&port).reset();
  std::unique_ptr<Store> store;
  const Status status = TcpStore::Open("127.0.0.1", port, false, kShort, &store);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("127.0.0.1:" + std::to_string(port)), std::string::npos) << status.message();
  EXPECT_EQ(store, nullptr);
}

TEST(TcpStore, TheServerMayStartLater) {
  uint16_t port = 0;
  Serve(&port).reset();
  std::unique_ptr<Store> client;
  Status status;
  std::thread early([&client, &status, port] { status = TcpStore::Open("127.0.0.1", port, false, kLong, &client); });
  const auto server = Serve(&port);
  early.join();
  client.reset();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(TcpStore, ATakenPortAndBadArgumentsAreRefused) {
  uint16_t port = 0;
  const auto server = Serve(&port);
  std::unique_ptr<Store> store;
  const Status taken = TcpStore::Open("127.0.0.1", port, true, kShort, &store);
  EXPECT_EQ(taken.code(), Code::kUnavailable);
  EXPECT_NE(taken.message().find(std::to_string(port)), std::string::npos) << taken.message();
  EXPECT_EQ(TcpStore::Open("127.0.0.1", 0, false, kShort, &store).code(), Code::kInvalidArgument);
  EXPECT_EQ(TcpStore::Open("", 1, false, kShort, &store).code(), Code::kInvalidArgument);
  EXPECT_EQ(TcpStore::Open("127.0.0.1", port, false, 0, &store).code(), Code::kInvalidArgument);
}

TEST(TcpStore, ALateReplyDoesNotAnswerTheNextCall) {
  uint16_t port = 0;
  const auto server = Serve(&port);
  std::unique_ptr<Store> client;
  ASSERT_TRUE(TcpStore::Open("127.0.0.1", port, false, kLong, &client).ok());
  std::string value;
  ASSERT_EQ(client->Get("late", kShort, &value).code(), Code::kNotFound);
  ASSERT_TRUE(server->Set("late", "wrong", kLong).ok());
  ASSERT_TRUE(server->Set("next", "right", kLong).ok());
  ASSERT_TRUE(client->Get("next", kLong, &value).ok());
  EXPECT_EQ(value, "right");
}

TEST(TcpStore, AServerThatGoesIsUnavailableAtOnce) {
  uint16_t port = 0;
  auto server = Serve(&port);
  std::unique_ptr<Store> client;
  ASSERT_TRUE(TcpStore::Open("127.0.0.1", port, false, kLong, &client).ok());
  Status waiting;
  std::string value;
  std::thread waiter([&] { waiting = client->Get("never", kLong, &value); });
  server.reset();
  waiter.join();
  EXPECT_EQ(waiting.code(), Code::kUnavailable) << waiting.message();
  EXPECT_EQ(client->Set("key", "value", kShort).code(), Code::kUnavailable);
}

TEST(TcpStore, ACallBehindAWaitingOneKeepsItsTimeout) {
  uint16_t port = 0;
  const auto server = Serve(&port);
  std::unique_ptr<Store> client;
  ASSERT_TRUE(TcpStore::Open("127.0.0.1", port, false, kLong, &client).ok());
  std::string value;
  std::thread waiter([&] { EXPECT_TRUE(client->Get("later", kLong, &value).ok()); });
  std::string other;
  const int64_t begin_ns = MonotonicNs();
  EXPECT_EQ(client->Get("missing", kShort, &other).code(), Code::kNotFound);
  EXPECT_LT(MonotonicNs() - begin_ns, kLong / 2);
  ASSERT_TRUE(server->Set("later", "x", kLong).ok());
  waiter.join();
}

TEST(TcpStore, ATotalAboveTheLimitIsRefused) {
  uint16_t port = 0;
  const auto store = Serve(&port);
  const std::string value(kStoreMaxValueBytes, 'x');
  Status status;
  size_t keys = 0;
  for (; status.ok() && keys < 5000; ++keys) status = store->Set("key" + std::to_string(keys), value, kLong);
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.message();
  EXPECT_EQ(keys, kTcpStoreMaxTotalBytes / kStoreMaxValueBytes);
  EXPECT_TRUE(store->Set("key0", value, kLong).ok()) << "replacing needs no more room";
}

TEST(TcpStore, ServesOnIPv6AndOnAllAddresses) {
  for (const std::string& host : {std::string("::1"), std::string("a-name-that-nobody-has.invalid")}) {
    uint16_t port = 0;
    std::unique_ptr<Store> store;
    const Status status = TcpStore::Open(host, 0, true, kLong, &store, &port);
    if (!status.ok() && host == "::1") continue;  // a machine without IPv6
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(store->Set("key", "value", kLong).ok());
  }
}

}  // namespace
}  // namespace gradgate
