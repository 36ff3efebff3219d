#include "daemon/rpc/page_token.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kKey = 42;

TEST(PageTokens, RoundTrip) {
  const PageTokens tokens(kKey);
  const PageStart start{7, -5, UINT64_MAX};
  const auto parsed = tokens.Parse(tokens.Make(start), 7);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, start);
}

TEST(PageTokens, ForeignTextIsRefused) {
  const PageTokens tokens(kKey);
  const std::vector<std::string> texts = {"x", "AAAA", "not base64 !", std::string(43, 'A'), std::string(1000, 'A')};
  for (const std::string& text : texts) {
    const auto parsed = tokens.Parse(text, 7);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("not one that this daemon made"));
  }
}

TEST(PageTokens, AnyChangeIsRefused) {
  const PageTokens tokens(kKey);
  const std::string token = tokens.Make({7, 1, 2});
  for (size_t i = 0; i + 1 < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(tokens.Parse(changed, 7).ok()) << i;
  }
}

TEST(PageTokens, AnotherDaemonsTokenIsRefused) {
  EXPECT_FALSE(PageTokens(kKey + 1).Parse(PageTokens(kKey).Make({7, 1, 2}), 7).ok());
}

TEST(PageTokens, TokenOfAnotherListIsRefused) {
  const PageTokens tokens(kKey);
  const auto parsed = tokens.Parse(tokens.Make({7, 1, 2}), 8);
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("belongs to another list"));
}

TEST(PageSize, DefaultsAndBounds) {
  EXPECT_EQ(*CheckPageSize(0), 100u);
  EXPECT_EQ(*CheckPageSize(1), 1u);
  EXPECT_EQ(*CheckPageSize(5000), 1000u);
  EXPECT_EQ(CheckPageSize(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gradgate
