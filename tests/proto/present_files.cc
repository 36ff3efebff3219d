#include "etcdserverpb/etcd.pb.h"
#include "gradgate/store/v1/policy.pb.h"
#include "gradgate/store/v1/store.pb.h"
#include "gradgate/v1/audit.pb.h"
#include "gradgate/v1/diagnosis.pb.h"
#include "gradgate/v1/plan.pb.h"
#include "gradgate/v1/policy.pb.h"
#include "gradgate/v1/stats.pb.h"
#include "tests/proto/breaking.h"

namespace gradgate::test {

google::protobuf::FileDescriptorSet PresentFiles() {
  google::protobuf::FileDescriptorSet set;
  for (const auto* file : {etcdserverpb::RangeRequest::descriptor()->file(), store::v1::StoredPolicy::descriptor()->file(),
                           store::v1::StoreFile::descriptor()->file(), v1::AuditCaller::descriptor()->file(),
                           v1::DiagnoseRequest::descriptor()->file(), v1::PlanSyncRequest::descriptor()->file(),
                           v1::GetPolicyRequest::descriptor()->file(), v1::ListJobsRequest::descriptor()->file()}) {
    file->CopyTo(set.add_file());
    file->CopyJsonNameTo(set.mutable_file(set.file_size() - 1));
  }
  return set;
}

}  // namespace gradgate::test
