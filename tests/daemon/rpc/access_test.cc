// Roles: what a certificate's URIs say, and who may call what. Every method of every service is listed.

#include "daemon/rpc/access.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gradgate/v1/diagnosis.pb.h"
#include "gradgate/v1/policy.pb.h"
#include "gradgate/v1/stats.pb.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kSet[] = "/gradgate.v1.PolicyService/SetPolicy";
constexpr char kGet[] = "/gradgate.v1.PolicyService/GetPolicy";

Role RoleIn(const std::vector<std::string>& uris, std::string* unknown = nullptr) {
  std::string own;
  return RoleOf(uris, unknown != nullptr ? unknown : &own);
}

// Of our services as their files have them; so a new method fails here until somebody has said who may call it.
TEST(Access, EveryMethodIsListed) {
  std::set<std::string> listed;
  for (const MethodAccess& one : ListMethods()) EXPECT_TRUE(listed.emplace(one.method).second) << one.method;
  for (const auto* file : {v1::GetPolicyRequest::descriptor()->file(), v1::ListJobsRequest::descriptor()->file(),
                           v1::DiagnoseRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        const std::string path = absl::StrCat("/", file->service(i)->full_name(), "/", file->service(i)->method(j)->name());
        EXPECT_EQ(listed.erase(path), 1u) << path << " is not in the table of daemon/rpc/access.cc";
      }
    }
  }
  for (const std::string& left : listed) EXPECT_EQ(left.rfind("/grpc.", 0), 0u) << left << " is no method of ours";
}

TEST(Access, OnlyWhatOnlyReadsIsForEverybody) {
  for (const MethodAccess& one : ListMethods()) {
    const std::string name(one.method.substr(one.method.rfind('/') + 1));
    bool reads = one.method.rfind("/grpc.", 0) == 0;
    for (const char* verb : {"Get", "List", "Watch", "Diagnose", "PlanSync"}) reads |= name.rfind(verb, 0) == 0;
    EXPECT_EQ(one.least, reads ? Role::kRead : Role::kOperator) << one.method;
  }
}

TEST(Access, MethodThatIsNotListedNeedsAnOperator) {
  EXPECT_EQ(LeastRoleFor("/gradgate.v1.PolicyService/DropPolicy"), Role::kOperator);
  EXPECT_EQ(LeastRoleFor(""), Role::kOperator);
  EXPECT_EQ(LeastRoleFor("gradgate.v1.PolicyService/GetPolicy"), Role::kOperator);
  EXPECT_EQ(LeastRoleFor(kGet), Role::kRead);
}

TEST(Access, RolesAreUris) {
  EXPECT_EQ(RoleIn({"spiffe://gradgate.local/gradgate/role/operator"}), Role::kOperator);
  EXPECT_EQ(RoleIn({"spiffe://cluster.local/gradgate/role/operator/alice"}), Role::kOperator);
  EXPECT_EQ(RoleIn({"spiffe://td/gradgate/role/node/n1"}), Role::kNode);
  EXPECT_EQ(RoleIn({"spiffe://td/gradgate/role/read"}), Role::kRead);
  EXPECT_EQ(RoleIn({}), Role::kRead);
  EXPECT_EQ(RoleIn({"https://a/b", "spiffe://td/gradgate/role/read", "spiffe://td/gradgate/role/operator"}), Role::kOperator)
      << "the highest of several";
}

TEST(Access, WhatOnlyLooksLikeARoleIsNone) {
  for (const char* uri :
       {"https://td/gradgate/role/operator", "spiffe:///gradgate/role/operator", "spiffe://td/ns/gradgate/role/operator",
        "spiffe://td/gradgate/role/operators", "spiffe://td/gradgate/role/Operator", "spiffe://td/gradgate/role/",
        "spiffe://td/gradgate/roles/operator", "spiffe://gradgate/role/operator", "SPIFFE://td/gradgate/role/operator",
        "spiffe://td/gradgate/role/read/operator", "spiffe://td/x/../gradgate/role/operator",
        "spiffe://td/gradgate/role/operator%2f", "spiffe://td", "spiffe://", ""}) {
    EXPECT_EQ(RoleIn({uri}), Role::kRead) << uri;
  }
}

TEST(Access, UnknownRoleIsTold) {
  std::string unknown;
  EXPECT_EQ(RoleIn({"spiffe://td/gradgate/role/admin"}, &unknown), Role::kRead);
  EXPECT_EQ(unknown, "admin");
  EXPECT_EQ(RoleIn({"spiffe://td/gradgate/role/\x1b[31m"}, &unknown), Role::kRead);
  EXPECT_EQ(unknown, "(text that cannot be shown)");
}

TEST(Access, RefusalNamesTheCallerItsRoleWhatIsNeededAndTheRemedy) {
  Caller caller;
  caller.transport = Transport::kTls;
  caller.subject = "CN=grafana,O=gradgate";
  caller.unknown_role = "admin";
  absl::Status status = CheckAccess(caller, kSet);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("certificate \"CN=grafana,O=gradgate\" has the role read"), HasSubstr("its \"admin\" is none"),
                    HasSubstr("PolicyService/SetPolicy needs operator"), HasSubstr("spiffe://DOMAIN/gradgate/role/operator"),
                    HasSubstr("gradgatectl certs DIR --client NAME=operator")));
  status = CheckAccess({.transport = Transport::kPlainTcp, .address = "127.0.0.1:5"}, kSet);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("TCP without TLS (127.0.0.1:5) has the role read"), HasSubstr("use api.sock on the node")));
}

TEST(Access, EachRoleMayWhatItIsFor) {
  for (const Role role : {Role::kRead, Role::kNode, Role::kOperator}) {
    EXPECT_TRUE(CheckAccess({.transport = Transport::kTls, .role = role}, kGet).ok());
    EXPECT_EQ(CheckAccess({.transport = Transport::kTls, .role = role}, kSet).ok(), role == Role::kOperator);
    EXPECT_EQ(CheckAccess({.transport = Transport::kTls, .role = role}, "/x/y").ok(), role == Role::kOperator);
  }
}

}  // namespace
}  // namespace gradgate
