#include "daemon/policy/policy_content.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

using google::protobuf::FieldMask;
using ::testing::AllOf;
using ::testing::HasSubstr;

v1::Policy Full() {
  v1::Policy policy;
  policy.set_sync_mode(v1::SYNC_MODE_WINDOW);
  policy.set_bucket_bytes(1 << 20);
  policy.set_wire_type(v1::WIRE_TYPE_BF16);
  policy.set_reshard(v1::RESHARD_WINDOW);
  policy.set_enforcement(v1::ENFORCEMENT_ENFORCE);
  return policy;
}

FieldMask Mask(const std::vector<std::string>& paths) {
  FieldMask mask;
  for (const std::string& path : paths) mask.add_paths(path);
  return mask;
}

TEST(CheckPolicy, Table) {
  struct Case {
    std::function<void(v1::Policy&)> change;
    const char* error;  // empty: fine
  };
  const Case cases[] = {
      {[](auto&) {}, ""},
      {[](auto& p) { p = v1::Policy(); }, ""},
      {[](auto& p) { p.set_sync_mode(v1::SYNC_MODE_AUTO); }, ""},
      {[](auto& p) { p.set_sync_mode(static_cast<v1::SyncMode>(5)); }, "sync_mode has the value 5"},
      {[](auto& p) { p.set_sync_mode(static_cast<v1::SyncMode>(-1)); }, "sync_mode has the value -1"},
      {[](auto& p) { p.set_wire_type(static_cast<v1::WireType>(4)); }, "wire_type has the value 4"},
      {[](auto& p) { p.set_reshard(static_cast<v1::Reshard>(3)); }, "reshard has the value 3"},
      {[](auto& p) { p.set_enforcement(static_cast<v1::Enforcement>(9)); }, "enforcement has the value 9"},
      {[](auto& p) { p.set_enforcement(v1::ENFORCEMENT_OFF); }, "enforcement is OFF"},
      {[](auto& p) { p.set_enforcement(v1::ENFORCEMENT_AUDIT); }, ""},
      {[](auto& p) { p.set_bucket_bytes(0); }, ""},
      {[](auto& p) { p.set_bucket_bytes(4095); }, "bucket_bytes is 4095; give 4096 to 1099511627776, or 0"},
      {[](auto& p) { p.set_bucket_bytes(-1); }, "bucket_bytes is -1"},
      {[](auto& p) { p.set_bucket_bytes(4096); }, ""},
      {[](auto& p) { p.set_bucket_bytes(int64_t{1} << 40); }, ""},
      {[](auto& p) { p.set_bucket_bytes((int64_t{1} << 40) + 1); }, "bucket_bytes is 1099511627777"},
  };
  for (const Case& c : cases) {
    v1::Policy policy = Full();
    c.change(policy);
    const absl::Status status = CheckPolicy(policy);
    if (*c.error == '\0') {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.error;
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.error));
    }
  }
}

TEST(Merge, OnlyFieldsOfTheMaskChange) {
  v1::Policy change;
  change.set_bucket_bytes(8192);
  const auto merged = Merge(Full(), change, Mask({"bucket_bytes"}));
  ASSERT_TRUE(merged.ok()) << merged.status();
  v1::Policy expected = Full();
  expected.set_bucket_bytes(8192);
  EXPECT_EQ(merged->SerializeAsString(), expected.SerializeAsString());
}

TEST(Merge, AFieldOfTheMaskThatIsNotSetGoesBackToWhatWasGiven) {
  const std::vector<std::string> fields = {"sync_mode", "bucket_bytes", "wire_type", "reshard", "enforcement"};
  for (const std::string& field : fields) {
    const auto merged = Merge(Full(), {}, Mask({field}));
    ASSERT_TRUE(merged.ok()) << merged.status();
    v1::Policy expected = Full();
    expected.GetReflection()->ClearField(&expected, v1::Policy::descriptor()->FindFieldByName(field));
    EXPECT_EQ(merged->SerializeAsString(), expected.SerializeAsString()) << field;
  }
  const auto merged = Merge(Full(), {}, Mask(fields));
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->SerializeAsString(), "");
}

TEST(Merge, MasksThatAreNone) {
  v1::Policy change;
  change.set_sync_mode(v1::SYNC_MODE_AUTO);
  const auto error = [&](const v1::Policy& what, const FieldMask& mask) {
    const auto merged = Merge(Full(), what, mask);
    EXPECT_EQ(merged.status().code(), absl::StatusCode::kInvalidArgument) << mask.ShortDebugString();
    return std::string(merged.status().message());
  };
  EXPECT_THAT(error(change, Mask({})), AllOf(HasSubstr("update_mask is empty"), HasSubstr("wire_type")));
  for (const char* path : {"mode", "", "*", "sync_mode.x", "Sync_Mode", "sync_mode,reshard", "\x1b"}) {
    EXPECT_THAT(error(change, Mask({path})), AllOf(HasSubstr("update_mask has \""), HasSubstr("a policy has sync_mode")))
        << path;
  }
  EXPECT_THAT(error(change, Mask({"reshard"})), HasSubstr("sets a field that update_mask does not have"));
  change.set_bucket_bytes(1);
  EXPECT_THAT(error(change, Mask({"sync_mode", "bucket_bytes"})), HasSubstr("bucket_bytes is 1"));
}

TEST(Merge, APathTwiceIsOnce) {
  v1::Policy change;
  change.set_bucket_bytes(8192);
  const auto merged = Merge({}, change, Mask({"bucket_bytes", "bucket_bytes"}));
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->bucket_bytes(), 8192);
}

TEST(ToFrame, HasWhatRanksCompare) {
  const link::PolicyFrame frame = ToFrame(Full(), 7);
  EXPECT_EQ(frame.version, 7u);
  EXPECT_EQ(frame.bucket_bytes, uint64_t{1} << 20);
  EXPECT_EQ(frame.sync_mode, 2u);
  EXPECT_EQ(frame.wire_type, 2u);
  EXPECT_EQ(frame.reshard, 2u);
  EXPECT_EQ(frame.enforcement, 3u);
  EXPECT_EQ(frame.content_hash, link::PolicyContentHash(frame));
  EXPECT_EQ(ToFrame(Full(), 8).content_hash, frame.content_hash) << "of the content alone";
  EXPECT_NE(ToFrame({}, 7).content_hash, frame.content_hash);
  EXPECT_EQ(FormatHash(frame).size(), 16u);
  link::PolicyFrame small{};
  small.content_hash = 0xab;
  EXPECT_EQ(FormatHash(small), "00000000000000ab");
}

TEST(Explain, EveryReasonHasWordsOfItsOwn) {
  std::set<std::string> texts;
  for (int reason = 1; reason < v1::PolicyRejection_ARRAYSIZE; ++reason) {
    texts.insert(Explain(static_cast<v1::PolicyRejection>(reason)));
  }
  EXPECT_EQ(texts.size(), static_cast<size_t>(v1::PolicyRejection_ARRAYSIZE - 1));
  EXPECT_EQ(texts.count("it does not say why"), 0u);
  for (const int strange : {0, 9, 99}) EXPECT_EQ(Explain(static_cast<v1::PolicyRejection>(strange)), "it does not say why");
}

}  // namespace
}  // namespace gradgate
