// PolicyService over a real server on a Unix socket, with a store that does what the test says.

#include "daemon/rpc/policy_service.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/node/clock.h"
#include "daemon/rpc/policy_watch.h"
#include "daemon/rpc/server.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/policy/fake_store.h"

namespace gradgate {
namespace {

using grpc::StatusCode;
using ::testing::AllOf;
using testing::FakePage;
using testing::FakeStore;
using ::testing::HasSubstr;

v1::SetPolicyRequest Change(const std::string& job, v1::SyncMode mode) {
  v1::SetPolicyRequest request;
  request.set_job(job);
  request.set_actor("ann@host");
  request.mutable_policy()->set_sync_mode(mode);
  request.mutable_update_mask()->add_paths("sync_mode");
  return request;
}

v1::SetPolicyRequest Buckets(const std::string& job, int64_t bytes) {
  v1::SetPolicyRequest request;
  request.set_job(job);
  request.mutable_policy()->set_bucket_bytes(bytes);
  request.mutable_update_mask()->add_paths("bucket_bytes");
  return request;
}

class PolicyServiceTest : public ::testing::Test {
 protected:
  PolicyServiceTest() {
    std::string pattern = ::testing::TempDir() + "/gg_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~PolicyServiceTest() override {
    store_.hang = false;
    server_.reset();
    rmdir(directory_.c_str());
  }

  // With both ranks of a job "job".
  void Start(size_t max_watchers = 8) {
    RpcOptions options;
    options.socket_path = directory_ + "/api.sock";
    options.max_watchers = max_watchers;
    options.node_name = "n1";
    auto server = RpcServer::Start(options, &registry_, &desk_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel("unix:" + options.socket_path, grpc::InsecureChannelCredentials());
    stub_ = v1::PolicyService::NewStub(channel_);
    if (!connections_.empty()) return;  // a server after another
    for (FakePage* page : {&first_, &second_}) connections_.push_back(registry_.Register(1000, page->Map())->connection);
  }

  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  }

  grpc::Status Set(const v1::SetPolicyRequest& request, v1::SetPolicyResponse* response = nullptr) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::SetPolicyResponse own;
    return stub_->SetPolicy(&context, request, response != nullptr ? response : &own);
  }

  void ExpectRefused(const v1::SetPolicyRequest& request, StatusCode code, const std::string& text) {
    const grpc::Status status = Set(request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(text));
  }

  int64_t SetVersion(const v1::SetPolicyRequest& request) {
    v1::SetPolicyResponse response;
    const grpc::Status status = Set(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.status().proposed().version();
  }

  v1::PolicyStatus Get(const std::string& job = "job") {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::GetPolicyRequest request;
    request.set_job(job);
    v1::GetPolicyResponse response;
    const grpc::Status status = stub_->GetPolicy(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.status();
  }

  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchPolicyResponse>> reader;
    v1::WatchPolicyResponse message;
    bool Read() { return reader->Read(&message); }
    const v1::PolicyStatus& status() const { return message.status(); }
  };
  std::unique_ptr<Watch> StartWatch(const std::string& job) {
    auto watch = std::make_unique<Watch>();
    SetDeadline(watch->context);
    v1::WatchPolicyRequest request;
    request.set_job(job);
    watch->reader = stub_->WatchPolicy(&watch->context, request);
    return watch;
  }

  // Ranks do as a job would that has read `version`.
  void Stage(int64_t version) {
    for (FakePage* page : {&first_, &second_}) page->page().totals.policy_staged_version = static_cast<uint64_t>(version);
    registry_.Tick();
  }
  void Adopt(int64_t version, uint64_t window) {
    for (FakePage* page : {&first_, &second_}) {
      page->page().totals.policy_staged_version = 0;
      page->page().totals.policy_version = static_cast<uint64_t>(version);
      page->page().totals.policy_adopted_window = window;
    }
    registry_.Tick();
  }
  void Reject(int64_t version, PolicyRejection why) {
    second_.page().totals.policy_rejected_version = static_cast<uint64_t>(version);
    second_.page().totals.policy_rejection = static_cast<uint64_t>(why);
    registry_.Tick();
  }
  void EndJob() {
    for (const uint64_t connection : connections_) registry_.End(connection, Ending::kGoodbye);
    connections_.clear();
  }

  bool Await(const std::function<bool()>& condition) {
    const absl::Time end = absl::Now() + absl::Seconds(60);
    for (; absl::Now() < end; absl::SleepFor(absl::Milliseconds(1))) {
      if (condition()) return true;
    }
    return false;
  }

  std::string directory_;
  SystemClock clock_;
  Registry registry_{RegistryOptions{}, &clock_};
  FakePage first_{{}}, second_{{.rank = 1}};
  std::vector<uint64_t> connections_;
  FakeStore store_;
  PolicyDesk desk_{&store_, &clock_, "n1"};
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PolicyService::Stub> stub_;
};

TEST_F(PolicyServiceTest, GetTellsWhatStandsAndWhoHasIt) {
  Start();
  v1::PolicyStatus status = Get();
  EXPECT_EQ(status.state(), v1::POLICY_STATE_UNSPECIFIED);
  EXPECT_EQ(status.job().job_name(), "job");
  EXPECT_EQ(status.ranks_size(), 2);
  EXPECT_EQ(status.store(), "fake");
  ASSERT_EQ(status.nodes_size(), 1);
  EXPECT_EQ(status.nodes(0).node_name(), "n1");
  EXPECT_TRUE(status.nodes(0).answered());
  const int64_t version = SetVersion(Change("job", v1::SYNC_MODE_AUTO));
  status = Get(status.job().run_id());
  EXPECT_EQ(status.proposed().version(), version);
  EXPECT_EQ(status.proposed().actor(), "ann@host");
  EXPECT_EQ(status.proposed().node_name(), "n1");
  EXPECT_EQ(status.state(), v1::POLICY_STATE_PROPOSED);
  Stage(version);
  EXPECT_EQ(Get().state(), v1::POLICY_STATE_STAGED);
  Adopt(version, 12);
  status = Get();
  EXPECT_EQ(status.state(), v1::POLICY_STATE_ADOPTED);
  EXPECT_EQ(status.adopted_window_index(), 12);
}

TEST_F(PolicyServiceTest, UnknownAndEmptyNames) {
  Start();
  for (const auto& [job, code] : {std::pair("nobody", StatusCode::NOT_FOUND), {"", StatusCode::INVALID_ARGUMENT}}) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::GetPolicyRequest request;
    request.set_job(job);
    v1::GetPolicyResponse response;
    EXPECT_EQ(stub_->GetPolicy(&context, request, &response).error_code(), code);
    EXPECT_EQ(Set(Change(job, v1::SYNC_MODE_AUTO)).error_code(), code);
    const auto watch = StartWatch(job);
    EXPECT_FALSE(watch->Read());
    EXPECT_EQ(watch->reader->Finish().error_code(), code);
  }
  EXPECT_EQ(store_.put_count, 0);
}

TEST_F(PolicyServiceTest, RequestsThatAreNoneWriteNothing) {
  Start();
  v1::SetPolicyRequest request = Change("job", v1::SYNC_MODE_AUTO);
  request.clear_update_mask();
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "update_mask is empty");
  ExpectRefused(Buckets("job", 17), StatusCode::INVALID_ARGUMENT, "bucket_bytes is 17");
  request = Change("job", v1::SYNC_MODE_AUTO);
  request.set_actor(std::string(129, 'x'));
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "actor has 129 bytes; give at most 128");
  request.set_actor("ann\x1b[2J");
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "printable");
  request.set_actor(std::string(128, 'x'));
  request.set_expected_version(-1);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "expected_version is -1");
  request.set_expected_version(0);
  request.set_validate_only(true);
  v1::SetPolicyResponse response;
  EXPECT_TRUE(Set(request, &response).ok());
  EXPECT_EQ(response.status().proposed().version(), 0);
  EXPECT_EQ(response.status().job().job_name(), "job");
  EXPECT_EQ(store_.put_count, 0);
}

TEST_F(PolicyServiceTest, AnEndedJobTakesNone) {
  Start();
  EndJob();
  ExpectRefused(Change("job", v1::SYNC_MODE_AUTO), StatusCode::FAILED_PRECONDITION, "has ended");
  EXPECT_EQ(store_.put_count, 0);
}

TEST_F(PolicyServiceTest, AStoreThatWasEmptiedIsTold) {
  Start();
  Adopt(30, 7);
  ExpectRefused(Change("job", v1::SYNC_MODE_AUTO), StatusCode::FAILED_PRECONDITION, "name all 5 fields");
  v1::SetPolicyRequest all = Change("job", v1::SYNC_MODE_AUTO);
  for (const char* field : {"bucket_bytes", "wire_type", "reshard", "enforcement"}) all.mutable_update_mask()->add_paths(field);
  ExpectRefused(all, StatusCode::FAILED_PRECONDITION, "hold version 30");
  first_.page().totals.policy_staged_version = 44;
  registry_.Tick();
  ExpectRefused(all, StatusCode::FAILED_PRECONDITION, "hold version 44");
  EXPECT_TRUE(store_.List("").empty());
}

TEST_F(PolicyServiceTest, TheStoresErrorsAreToldAsTheStores) {
  Start();
  store_.Fail(absl::UnavailableError("etcd is away"));
  ExpectRefused(Change("job", v1::SYNC_MODE_AUTO), StatusCode::FAILED_PRECONDITION, "etcd is away");
  store_.Fail(absl::PermissionDeniedError("not you"));
  ExpectRefused(Change("job", v1::SYNC_MODE_AUTO), StatusCode::PERMISSION_DENIED, "not you");
}

TEST_F(PolicyServiceTest, FieldsThatDoNotChangeStay) {
  Start();
  SetVersion(Buckets("job", 8192));
  v1::SetPolicyResponse response;
  ASSERT_TRUE(Set(Change("job", v1::SYNC_MODE_WINDOW), &response).ok());
  EXPECT_EQ(response.status().proposed().policy().bucket_bytes(), 8192);
  EXPECT_EQ(response.status().proposed().policy().sync_mode(), v1::SYNC_MODE_WINDOW);
  EXPECT_EQ(response.status().proposed().former_policy().sync_mode(), v1::SYNC_MODE_UNSPECIFIED);
  EXPECT_EQ(response.status().proposed().former_policy().bucket_bytes(), 0) << "which no rank has in force yet";
  EXPECT_EQ(response.status().state(), v1::POLICY_STATE_PROPOSED);
}

TEST_F(PolicyServiceTest, AfterARejectionTheNextIsMadeFromWhatWasBefore) {
  Start();
  Adopt(SetVersion(Change("job", v1::SYNC_MODE_WINDOW)), 7);
  const int64_t refused = SetVersion(Buckets("job", 8192));
  Reject(refused, PolicyRejection::kFixed);
  EXPECT_EQ(Get().state(), v1::POLICY_STATE_REJECTED);
  v1::SetPolicyRequest audit;
  audit.set_job("job");
  audit.mutable_policy()->set_enforcement(v1::ENFORCEMENT_AUDIT);
  audit.mutable_update_mask()->add_paths("enforcement");
  v1::SetPolicyResponse response;
  ASSERT_TRUE(Set(audit, &response).ok());
  const v1::ProposedPolicy& proposed = response.status().proposed();
  EXPECT_EQ(proposed.policy().bucket_bytes(), 0) << "nobody has adopted that";
  EXPECT_EQ(proposed.policy().sync_mode(), v1::SYNC_MODE_WINDOW);
  EXPECT_EQ(proposed.policy().enforcement(), v1::ENFORCEMENT_AUDIT);
  EXPECT_EQ(response.status().state(), v1::POLICY_STATE_PROPOSED);
}

TEST_F(PolicyServiceTest, ExpectedVersionLetsOneOfTwoWin) {
  Start();
  const int64_t version = SetVersion(Change("job", v1::SYNC_MODE_WINDOW));
  v1::SetPolicyRequest request = Buckets("job", 8192);
  request.set_expected_version(version + 1);
  ExpectRefused(request, StatusCode::ABORTED, absl::StrCat("the present version is ", version, ", not ", version + 1));
  request.set_expected_version(version);
  EXPECT_GT(SetVersion(request), version);
  ExpectRefused(request, StatusCode::ABORTED, "look at it and set again");
}

TEST_F(PolicyServiceTest, ProposersAtOnceLoseNoUpdate) {
  Start();
  constexpr int kEach = 25;
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (int i = 0; i < kEach; ++i) SetVersion(Buckets("job", 4096 + i));
  });
  threads.emplace_back([&] {
    for (int i = 0; i < kEach; ++i) SetVersion(Change("job", i % 2 == 0 ? v1::SYNC_MODE_AUTO : v1::SYNC_MODE_WINDOW));
  });
  std::atomic<int> won = 0;
  threads.emplace_back([&] {
    for (int i = 0; i < kEach; ++i) {
      v1::SetPolicyRequest request;
      request.set_job("job");
      request.mutable_policy()->set_enforcement(v1::ENFORCEMENT_AUDIT);
      request.mutable_update_mask()->add_paths("enforcement");
      request.set_expected_version(std::max<int64_t>(1, Get().proposed().version()));
      const grpc::Status status = Set(request);
      won += status.ok() ? 1 : 0;
      EXPECT_TRUE(status.ok() || status.error_code() == StatusCode::ABORTED) << status.error_message();
    }
  });
  for (std::thread& thread : threads) thread.join();
  const v1::ProposedPolicy last = Get().proposed();
  EXPECT_EQ(last.version(), 2 * kEach + won) << "each that was told OK is in the store once";
  EXPECT_EQ(last.policy().bucket_bytes(), 4096 + kEach - 1);
  EXPECT_EQ(last.policy().sync_mode(), v1::SYNC_MODE_AUTO);
  EXPECT_EQ(last.policy().enforcement(), won > 0 ? v1::ENFORCEMENT_AUDIT : v1::ENFORCEMENT_UNSPECIFIED);
}

// Another daemon writes between this one's reads, and this one's copy follows a moment later.
TEST_F(PolicyServiceTest, ALateCopyIsWaitedForAShortWhile) {
  Start();
  SetVersion(Change("job", v1::SYNC_MODE_WINDOW));
  PolicyDesk elsewhere(&store_, &clock_, "elsewhere");
  const auto write = [&](int64_t bucket_bytes) {
    elsewhere.Refresh();
    const v1::PolicyStatus present = Get();
    Proposal proposal;
    proposal.job = KeyOf(present.job());
    proposal.policy = present.proposed().policy();
    proposal.policy.set_bucket_bytes(bucket_bytes);
    proposal.expected = present.proposed().version();
    return elsewhere.Propose(proposal, absl::Now() + absl::Seconds(5));
  };
  store_.late = true;
  const auto other = write(8192);  // the copy does not show it
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_LT(Get().proposed().version(), other->version());
  std::thread catches_up([&] {
    EXPECT_TRUE(Await([&] { return store_.put_count >= 3; }));
    store_.CatchUp();
    desk_.Refresh();
  });
  v1::SetPolicyRequest audit;
  audit.set_job("job");
  audit.mutable_policy()->set_enforcement(v1::ENFORCEMENT_AUDIT);
  audit.mutable_update_mask()->add_paths("enforcement");
  v1::SetPolicyResponse response;
  const grpc::Status status = Set(audit, &response);
  catches_up.join();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.status().proposed().policy().bucket_bytes(), 8192) << "no update is lost";
  // One that never follows is told at last.
  store_.CatchUp();
  desk_.Refresh();
  ASSERT_TRUE(write(16384).ok());
  ExpectRefused(Buckets("job", 4096), StatusCode::ABORTED, "");
}

TEST_F(PolicyServiceTest, AWatchShowsEachChangeAndTheEnd) {
  Start();
  const auto watch = StartWatch("job");
  ASSERT_TRUE(watch->Read());
  EXPECT_EQ(watch->status().state(), v1::POLICY_STATE_UNSPECIFIED);
  const int64_t version = SetVersion(Change("job", v1::SYNC_MODE_WINDOW));
  ASSERT_TRUE(watch->Read());
  EXPECT_EQ(watch->status().state(), v1::POLICY_STATE_PROPOSED);
  EXPECT_EQ(watch->status().proposed().version(), version);
  Stage(version);
  ASSERT_TRUE(watch->Read());
  EXPECT_EQ(watch->status().state(), v1::POLICY_STATE_STAGED);
  first_.CloseWindow();  // windows alone are no news
  second_.CloseWindow();
  registry_.Tick();
  Adopt(version, 3);
  ASSERT_TRUE(watch->Read());
  EXPECT_EQ(watch->status().state(), v1::POLICY_STATE_ADOPTED);
  EndJob();
  while (watch->Read()) {  // one rank after the other
  }
  EXPECT_EQ(watch->status().job().state(), v1::STATE_FINISHED);
  EXPECT_TRUE(watch->reader->Finish().ok());
}

TEST(PolicyWatchTest, HowSoonANodeAnsweredIsNoNewsAndWhetherItDidIs) {
  v1::PolicyStatus before;
  before.add_nodes()->set_answered(true);
  before.mutable_nodes(0)->mutable_answer_duration()->set_nanos(1);
  before.mutable_job()->set_window_count(3);
  v1::PolicyStatus after = before;
  after.mutable_nodes(0)->mutable_answer_duration()->set_nanos(2);
  after.mutable_job()->set_window_count(4);
  EXPECT_TRUE(TellTheSame(before, after));
  after.mutable_nodes(0)->set_answered(false);
  EXPECT_FALSE(TellTheSame(before, after));
}

TEST_F(PolicyServiceTest, TheFirstMessageComesAtOnce) {
  absl::Duration waited;
  for (int i = 0; i < 4; ++i) {
    server_.reset();
    Start();  // its worker has nothing to do
    Get();    // connected
    const absl::Time begin = absl::Now();
    ASSERT_TRUE(StartWatch("job")->Read());
    waited += absl::Now() - begin;
  }
  EXPECT_LT(waited, 3 * PolicyService::kWatchInterval);
}

TEST_F(PolicyServiceTest, WindowsAloneAreNoNews) {
  Start();
  const auto watch = StartWatch("job");
  ASSERT_TRUE(watch->Read());
  const int64_t windows = watch->status().job().window_count();
  for (int i = 0; i < 3; ++i) {
    first_.CloseWindow();
    second_.CloseWindow();
    registry_.Tick();
    absl::SleepFor(PolicyService::kWatchInterval);
  }
  SetVersion(Change("job", v1::SYNC_MODE_WINDOW));
  ASSERT_TRUE(watch->Read());
  EXPECT_GT(watch->status().job().window_count(), windows);
  EXPECT_EQ(watch->status().state(), v1::POLICY_STATE_PROPOSED) << "the first message since";
}

TEST_F(PolicyServiceTest, AWatchOfAnEndedJobShowsItOnce) {
  Start();
  EndJob();
  const auto watch = StartWatch("job");
  ASSERT_TRUE(watch->Read());
  EXPECT_EQ(watch->status().job().state(), v1::STATE_FINISHED);
  EXPECT_FALSE(watch->Read());
  EXPECT_TRUE(watch->reader->Finish().ok());
}

TEST_F(PolicyServiceTest, WatchersAreLimitedAndOneThatGoesMakesRoom) {
  Start(2);
  const auto one = StartWatch("job"), two = StartWatch("job");
  ASSERT_TRUE(one->Read());
  ASSERT_TRUE(two->Read());
  auto third = StartWatch("job");
  EXPECT_FALSE(third->Read());
  const grpc::Status status = third->reader->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("too many watchers: 2"), HasSubstr("--max_watchers")));
  one->context.TryCancel();
  EXPECT_EQ(one->reader->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Await([&] {
    third = StartWatch("job");
    return third->Read();
  }));
}

TEST_F(PolicyServiceTest, ASlowReaderMissesSomeButNotTheLast) {
  Start();
  const auto slow = StartWatch("job"), quick = StartWatch("job");
  ASSERT_TRUE(quick->Read());
  int64_t version = 0;
  for (int i = 0; i < 50; ++i) version = SetVersion(Buckets("job", 4096 + i));
  do {
    ASSERT_TRUE(quick->Read());
  } while (quick->status().proposed().version() < version);
  do {
    ASSERT_TRUE(slow->Read());
  } while (slow->status().proposed().version() < version);
}

TEST_F(PolicyServiceTest, AShutdownEndsWatches) {
  Start();
  const auto watch = StartWatch("job");
  ASSERT_TRUE(watch->Read());
  server_->ShutDown(absl::Seconds(1));
  EXPECT_FALSE(watch->Read());
  EXPECT_EQ(watch->reader->Finish().error_code(), StatusCode::UNAVAILABLE);
}

TEST_F(PolicyServiceTest, AStoreThatHangsIsToldBeforeTheCallersTimeIsOver) {
  Start();
  store_.hang = true;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  v1::SetPolicyResponse response;
  const grpc::Status status = stub_->SetPolicy(&context, Change("job", v1::SYNC_MODE_AUTO), &response);
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("the store"), HasSubstr("the policy may be in it all the same")));
}

// Calls whose answers are taken later.
class Calls {
 public:
  explicit Calls(v1::PolicyService::Stub* stub) : stub_(stub) {}

  void Start(const v1::SetPolicyRequest& request) {
    calls_.push_back(std::make_unique<Call>());
    Call* const call = calls_.back().get();
    call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    call->request = request;
    stub_->async()->SetPolicy(&call->context, &call->request, &call->response, [this, call](grpc::Status status) {
      call->status = std::move(status);
      ++done_;
    });
  }
  void CancelAll() {
    for (const auto& call : calls_) call->context.TryCancel();
  }
  size_t done() const { return done_; }
  std::map<StatusCode, int> Codes() const {
    std::map<StatusCode, int> codes;
    for (const auto& call : calls_) ++codes[call->status.error_code()];
    return codes;
  }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::SetPolicyRequest request;
    v1::SetPolicyResponse response;
    grpc::Status status;
  };
  v1::PolicyService::Stub* const stub_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::atomic<size_t> done_ = 0;
};

TEST_F(PolicyServiceTest, TooManyThatWaitAreRefusedAndTheOthersAreServed) {
  Start();
  store_.hang = true;
  Calls calls(stub_.get());
  calls.Start(Buckets("job", 4096));
  ASSERT_TRUE(Await([&] { return store_.put_count == 1; }));  // the worker is busy with it
  for (size_t i = 0; i < PolicyService::kMaxWaiting + 10; ++i) calls.Start(Buckets("job", 8192 + static_cast<int64_t>(i)));
  EXPECT_TRUE(Await([&] { return calls.done() == 10; }));
  EXPECT_EQ(Get().proposed().version(), 0) << "reads do not wait for the store";
  store_.hang = false;
  ASSERT_TRUE(Await([&] { return calls.done() == PolicyService::kMaxWaiting + 11; }));
  const auto codes = calls.Codes();
  EXPECT_EQ(codes.at(StatusCode::RESOURCE_EXHAUSTED), 10);
  EXPECT_EQ(codes.at(StatusCode::OK), static_cast<int>(PolicyService::kMaxWaiting) + 1);
  EXPECT_EQ(Get().proposed().version(), static_cast<int64_t>(PolicyService::kMaxWaiting) + 1);
}

TEST_F(PolicyServiceTest, CallersThatGoWhileTheyWaitHurtNobody) {
  Start();
  store_.hang = true;
  Calls calls(stub_.get());
  for (int i = 0; i < 20; ++i) calls.Start(Buckets("job", 4096 + i));
  ASSERT_TRUE(Await([&] { return store_.put_count == 1; }));
  calls.CancelAll();
  ASSERT_TRUE(Await([&] { return calls.done() == 20; }));
  store_.hang = false;
  EXPECT_GT(SetVersion(Change("job", v1::SYNC_MODE_WINDOW)), 0);
}

TEST_F(PolicyServiceTest, AShutdownWaitsForTheStoreNoLongerThanItsDeadline) {
  Start();
  store_.hang = true;
  Calls calls(stub_.get());
  for (int i = 0; i < 10; ++i) calls.Start(Buckets("job", 4096 + i));
  ASSERT_TRUE(Await([&] { return store_.put_count == 1; }));
  const absl::Time begin = absl::Now();
  server_->ShutDown(absl::Seconds(1));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  ASSERT_TRUE(Await([&] { return calls.done() == 10; }));
  EXPECT_EQ(store_.put_count, 1) << "nothing new is begun";
  const auto codes = calls.Codes();
  EXPECT_EQ(codes.count(StatusCode::OK), 0u);
  EXPECT_GE(codes.at(StatusCode::UNAVAILABLE), 9);
}

// CheckProposal alone.

v1::PolicyStatus Running() {
  v1::PolicyStatus status;
  status.mutable_job()->set_job_name("job");
  status.mutable_job()->set_run_id("r");
  status.mutable_job()->set_user_id(1000);
  status.mutable_job()->set_attempt(3);
  status.mutable_job()->set_state(v1::STATE_RUNNING);
  return status;
}

TEST(CheckProposal, IsAboveWhatAnyRankHolds) {
  v1::PolicyStatus status = Running();
  status.mutable_proposed()->set_version(4);
  status.add_ranks()->set_adopted_version(3);
  status.add_ranks()->set_staged_version(9);
  status.add_ranks()->set_rejected_version(99);
  const auto proposal = CheckProposal(Change("job", v1::SYNC_MODE_AUTO), status, "");
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  EXPECT_EQ(proposal->above, 99) << "a rank takes nothing below what it has rejected either";
  EXPECT_EQ(proposal->expected, 4);
  EXPECT_EQ(proposal->job.user_id, 1000u);
  EXPECT_EQ(proposal->job.attempt, 3u);
  EXPECT_EQ(proposal->actor, "ann@host");
}

TEST(CheckProposal, ACertificatesNameStaysBehindTheActor) {
  v1::SetPolicyRequest request = Change("job", v1::SYNC_MODE_AUTO);
  const auto actor = [&](const std::string& caller) { return CheckProposal(request, Running(), caller)->actor; };
  EXPECT_EQ(actor("node-7"), "ann@host (node-7)");
  request.set_actor("");
  EXPECT_EQ(actor("node-7"), " (node-7)");
  request.set_actor(std::string(128, 'x'));
  EXPECT_EQ(actor("node-7"), std::string(119, 'x') + " (node-7)") << "whoever gives a long name hides nothing";
  EXPECT_EQ(actor(std::string(300, 'c')), std::string(45, 'x') + " (" + std::string(80, 'c') + ")");
  std::string umlauts;
  for (int i = 0; i < 64; ++i) umlauts += "ä";
  request.set_actor(umlauts);
  EXPECT_EQ(actor("ab"), umlauts.substr(0, 122) + " (ab)") << "cut between characters";
  request.set_actor("ann");
  EXPECT_EQ(actor("a\x1b]"), "ann (a\\x1b])");
}

}  // namespace
}  // namespace gradgate
