#include "daemon/store/store_address.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

using Kind = StoreAddress::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StoreAddress Parsed(const std::string& text) {
  const auto address = ParseStoreAddress(text);
  EXPECT_TRUE(address.ok()) << address.status();
  return address.value_or(StoreAddress());
}

TEST(StoreAddress, EachFormIsRead) {
  EXPECT_EQ(Parsed("").kind, Kind::kDefault);
  EXPECT_EQ(Parsed("memory").kind, Kind::kMemory);
  EXPECT_EQ(Parsed("file:/a/b").path, "/a/b");
  EXPECT_EQ(Parsed("file:b").path, "b");
  EXPECT_EQ(Parsed("file:///a/b").path, "/a/b");
  const StoreAddress etcd = Parsed("etcd://a:1,10.0.0.1,[::1]:3,[fe80::1%eth0]/");
  EXPECT_EQ(etcd.kind, Kind::kEtcd);
  EXPECT_FALSE(etcd.tls);
  EXPECT_THAT(etcd.endpoints, ElementsAre("a:1", "10.0.0.1:2379", "[::1]:3", "[fe80::1%eth0]:2379"));
  EXPECT_TRUE(Parsed("etcds://a").tls);
}

TEST(StoreAddress, WrongOnesAreNamedWithTheForms) {
  for (const char* text :
       {"redis://a", "file:", "file:/a/", "etcd://", "etcd://a:0", "etcd://a:65536", "etcd://a,,b", "etcd://a b:1",
        "etcd://::1:2379", "etcd://a:1/path", "Memory", "/var/lib/x", "etcd://[::1", "etcd://user@a:1"}) {
    const auto address = ParseStoreAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr(std::string("--store=") + text)) << text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr("it may be memory, file:PATH, etcd://")) << text;
  }
  EXPECT_THAT(std::string(ParseStoreAddress("https://a:1").status().message()), HasSubstr("write etcds://a:1"));
  EXPECT_THAT(std::string(ParseStoreAddress("http://a:1").status().message()), HasSubstr("write etcd://a:1"));
  std::string many = "etcd://a";
  for (int i = 0; i < 40; ++i) many += ",a";
  EXPECT_THAT(std::string(ParseStoreAddress(many).status().message()), HasSubstr("more than 32 endpoints"));
}

TEST(StoreAddress, NodeNamesAreKeysAndShown) {
  for (const char* name : {"a", "node-7.example_x", "7"}) EXPECT_TRUE(CheckNodeName(name).ok()) << name;
  for (const std::string& name :
       {std::string(), std::string("a/b"), std::string("a b"), std::string("a\x1b"), std::string("ä"), std::string(129, 'a')}) {
    EXPECT_THAT(std::string(CheckNodeName(name).message()), HasSubstr("--node_name")) << name;
  }
  EXPECT_TRUE(CheckNodeName(std::string(128, 'a')).ok());
}

TEST(StoreAddress, AdvertisedAddressCanBeConnectedTo) {
  for (const char* address : {"a:1", "10.0.0.1:9768", "[::1]:9768", "a:0"})
    EXPECT_TRUE(CheckAdvertiseAddress(address).ok()) << address;
  for (const char* address :
       {"", "a", ":1", "a:", "a:x", "a:-1", "a:65536", "0.0.0.0:1", "[::]:1", "::1:1", "a b:1", "http://a:1"}) {
    EXPECT_THAT(std::string(CheckAdvertiseAddress(address).message()), HasSubstr("--advertise")) << address;
  }
}

}  // namespace
}  // namespace gradgate
