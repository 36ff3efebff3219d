#include "client/cli/policy_options.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate::cli {
namespace {

using ::testing::HasSubstr;

TEST(ParsePolicy, Table) {
  struct Case {
    std::vector<std::string> words;
    const char* policy;  // as text
    const char* mask;
  };
  const Case cases[] = {
      {{"mode=auto"}, "sync_mode: SYNC_MODE_AUTO", "sync_mode"},
      {{"mode=window"}, "sync_mode: SYNC_MODE_WINDOW", "sync_mode"},
      {{"mode=window_replica"}, "sync_mode: SYNC_MODE_WINDOW_REPLICA", "sync_mode"},
      {{"mode=every_micro_step"}, "sync_mode: SYNC_MODE_EVERY_MICRO_STEP", "sync_mode"},
      {{"mode=given"}, "", "sync_mode"},
      {{"wire=gradient"}, "wire_type: WIRE_TYPE_GRADIENT", "wire_type"},
      {{"wire=bf16"}, "wire_type: WIRE_TYPE_BF16", "wire_type"},
      {{"wire=fp16"}, "wire_type: WIRE_TYPE_FP16", "wire_type"},
      {{"reshard=every_micro_step"}, "reshard: RESHARD_EVERY_MICRO_STEP", "reshard"},
      {{"reshard=window"}, "reshard: RESHARD_WINDOW", "reshard"},
      {{"enforcement=audit"}, "enforcement: ENFORCEMENT_AUDIT", "enforcement"},
      {{"enforcement=enforce"}, "enforcement: ENFORCEMENT_ENFORCE", "enforcement"},
      {{"bucket=4096"}, "bucket_bytes: 4096", "bucket_bytes"},
      {{"bucket=4KiB"}, "bucket_bytes: 4096", "bucket_bytes"},
      {{"bucket=5kb"}, "bucket_bytes: 5000", "bucket_bytes"},
      {{"bucket=25MiB"}, "bucket_bytes: 26214400", "bucket_bytes"},
      {{"bucket=0.5 mib"}, "bucket_bytes: 524288", "bucket_bytes"},
      {{"bucket=2MB"}, "bucket_bytes: 2000000", "bucket_bytes"},
      {{"bucket=1GB"}, "bucket_bytes: 1000000000", "bucket_bytes"},
      {{"bucket=1024GiB"}, "bucket_bytes: 1099511627776", "bucket_bytes"},
      {{"bucket=9000B"}, "bucket_bytes: 9000", "bucket_bytes"},
      {{"bucket=given"}, "", "bucket_bytes"},
      {{"wire=bf16", "mode=given", "bucket=8KiB"},
       "bucket_bytes: 8192 wire_type: WIRE_TYPE_BF16",
       "wire_type,sync_mode,bucket_bytes"},
  };
  for (const Case& c : cases) {
    const auto request = ParsePolicy(c.words);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ(request->policy().ShortDebugString(), c.policy) << absl::StrJoin(c.words, " ");
    EXPECT_EQ(absl::StrJoin(request->update_mask().paths(), ","), c.mask);
  }
}

TEST(ParsePolicy, EachBadWordIsNamedWithWhatWouldDo) {
  struct Case {
    std::vector<std::string> words;
    const char* error;
  };
  const char* const sizes = ": must be a size from 4KiB to 1024GiB, as 25MiB or 26214400, or given";
  const Case cases[] = {
      {{"mode=windows"}, "mode=windows: must be one of auto, window, window_replica, every_micro_step, given"},
      {{"mode="}, "mode=: must be one of auto"},
      {{"mode=Window"}, "mode=Window: must be one of"},
      {{"mode=window=window"}, "mode=window=window: must be one of"},
      {{"wire=fp8"}, "wire=fp8: must be one of gradient, bf16, fp16, given"},
      {{"reshard=never"}, "reshard=never: must be one of every_micro_step, window, given"},
      {{"enforcement=off"}, "enforcement=off: must be one of audit, enforce, given"},
      {{"mode"}, "\"mode\": a policy has mode=, bucket=, wire=, reshard= and enforcement="},
      {{""}, "\"\": a policy has"},
      {{"="}, "\"=\": a policy has"},
      {{"sync_mode=auto"}, "\"sync_mode=auto\": a policy has"},
      {{"mode=auto", "wire=bf16", "mode=window"}, "mode= is given twice"},
      {{"bucket=given", "bucket=8KiB"}, "bucket= is given twice"},
  };
  for (const Case& c : cases) {
    const auto request = ParsePolicy(c.words);
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << absl::StrJoin(c.words, " ");
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(c.error));
  }
  for (const char* size : {"4095", "0", "", "-8KiB", "nan", "inf", "infMiB", "1025GiB", "1e300", "1e400", "25 apples", "MiB",
                           "4KiBB", "1.2.3MiB"}) {
    const auto request = ParsePolicy({std::string("bucket=") + size});
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << size;
    EXPECT_EQ(request.status().message(), std::string("bucket=") + size + sizes);
  }
}

TEST(PolicyText, IsWhatWouldBeTyped) {
  v1::Policy policy;
  for (const auto& text :
       {ModeText(policy), BucketText(policy), WireText(policy), ReshardText(policy), EnforcementText(policy)}) {
    EXPECT_EQ(text, "as given");
  }
  policy = ParsePolicy({"mode=window_replica", "bucket=25MiB", "wire=fp16", "reshard=window", "enforcement=audit"})->policy();
  EXPECT_EQ(ModeText(policy), "window_replica");
  EXPECT_EQ(BucketText(policy), "25 MiB");
  EXPECT_EQ(WireText(policy), "fp16");
  EXPECT_EQ(ReshardText(policy), "window");
  EXPECT_EQ(EnforcementText(policy), "audit");
  policy.set_sync_mode(static_cast<v1::SyncMode>(9));
  EXPECT_EQ(ModeText(policy), "9") << "of a younger daemon";
  policy.set_enforcement(v1::ENFORCEMENT_OFF);
  EXPECT_EQ(EnforcementText(policy), "1");
}

}  // namespace
}  // namespace gradgate::cli
