// WatchWindows over several daemons: real servers, some behind a relay that stalls or cuts.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/daemon/rpc/fake_peer.h"
#include "tests/daemon/rpc/many_daemons.h"
#include "tests/daemon/store/await.h"
#include "tests/daemon/store/relay.h"

namespace gradgate {
namespace {

using testing::Await;
using testing::Daemons;
using testing::FakePage;
using testing::FakePeer;
using ::testing::HasSubstr;
using testing::Relay;

class JobWatchTest : public Daemons {
 protected:
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchWindowsResponse>> reader;
    v1::WatchWindowsResponse message;
    bool Read() { return reader->Read(&message); }
  };
  std::unique_ptr<Stream> Watch(size_t daemon, std::optional<int64_t> first = 0, v1::Scope scope = v1::SCOPE_UNSPECIFIED) {
    auto stream = std::make_unique<Stream>();
    stream->context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
    v1::WatchWindowsRequest request;
    request.set_job("job");
    request.set_scope(scope);
    if (first) request.set_first_window_index(*first);
    stream->reader = daemons_[daemon]->stub->WatchWindows(&stream->context, request);
    return stream;
  }

  // "w0:0,1", "w0:0!" if incomplete, "n001,-n002" of nodes, "end"; "over" and the status once the stream has ended.
  static std::string Next(Stream& stream) {
    if (!stream.Read()) return absl::StrCat("over ", static_cast<int>(stream.reader->Finish().error_code()));
    const v1::WatchWindowsResponse& message = stream.message;
    if (message.has_ended_job()) return "end";
    if (message.nodes_size() > 0) {
      return absl::StrJoin(message.nodes(), ",", [](std::string* out, const auto& node) {
        absl::StrAppend(out, node.answered() ? "" : "-", node.node_name());
      });
    }
    const auto rank = [](std::string* out, const auto& one) { absl::StrAppend(out, one.rank()); };
    return absl::StrCat("w", message.window().window_index(), ":", absl::StrJoin(message.window().ranks(), ",", rank),
                        message.window().complete() ? "" : "!");
  }

  // One rank on each daemon.
  void RunOnEach(int windows) {
    for (uint32_t rank = 0; rank < daemons_.size(); ++rank) {
      FakePage& page = *pages_.emplace_back(std::make_unique<FakePage>(
          testing::FakeIdentity{.rank = rank, .world_size = static_cast<uint32_t>(daemons_.size())}));
      for (int i = 0; i < windows; ++i) page.CloseWindow();
      registrations_.push_back(*daemons_[rank]->registry->Register(testing::kUid, page.Map()));
    }
  }
  void Close(size_t rank) {
    pages_[rank]->CloseWindow();
    daemons_[rank]->registry->Tick();
    daemons_[rank]->server->WakeWatchers();
  }
  void CloseAll() {
    for (size_t rank = 0; rank < pages_.size(); ++rank) Close(rank);
  }
  void EndAll() {
    for (size_t rank = 0; rank < pages_.size(); ++rank) {
      daemons_[rank]->registry->End(registrations_[rank].connection, Ending::kGoodbye);
    }
  }
  // Behind a relay for all others.
  std::unique_ptr<Relay> Hide(size_t daemon) {
    auto relay = std::make_unique<Relay>(Address(*daemons_[daemon]));
    store_.AddNode(daemons_[daemon]->name, relay->endpoint());
    return relay;
  }

  std::vector<Registration> registrations_;
};

TEST_F(JobWatchTest, AnyDaemonStreamsTheWindowsOfAllNodes) {
  Add(2);
  RunOnEach(2);
  Add(1);
  const auto here = Watch(0), elsewhere = Watch(2);
  EXPECT_EQ(Next(*here), "n001,n002,n003");
  EXPECT_EQ(Next(*elsewhere), "n003,n001,n002") << "the one that was asked first";
  for (Stream* stream : {here.get(), elsewhere.get()}) {
    EXPECT_EQ(Next(*stream), "w0:0,1");
    EXPECT_EQ(Next(*stream), "w1:0,1");
  }
  Close(1);
  Close(0);
  Close(0);
  for (Stream* stream : {here.get(), elsewhere.get()}) EXPECT_EQ(Next(*stream), "w2:0,1");
  EndAll();
  for (Stream* stream : {here.get(), elsewhere.get()}) {
    EXPECT_EQ(Next(*stream), "w3:0!") << "rank 1 ended before it";
    EXPECT_EQ(Next(*stream), "end");
    EXPECT_EQ(stream->message.ended_job().finished_rank_count(), 2);
    EXPECT_EQ(Next(*stream), "over 0");
  }
}

TEST_F(JobWatchTest, ScopeNodeIsTheOwnNodeAlone) {
  Add(2);
  RunOnEach(1);
  const auto own = Watch(1, 0, v1::SCOPE_NODE);
  EXPECT_EQ(Next(*own), "w0:1");
}

TEST_F(JobWatchTest, ASilentNodeIsNamedHoldsNobodyUpAndIsTakenUpAgain) {
  Add(2);
  RunOnEach(1);
  const auto relay = Hide(1);
  const auto stream = Watch(0);
  EXPECT_EQ(Next(*stream), "n001,n002");
  EXPECT_EQ(Next(*stream), "w0:0,1");
  for (const Relay::Mode trouble : {Relay::Mode::kStall, Relay::Mode::kCut}) {
    const int64_t index = stream->message.window().window_index() + 1;
    relay->Set(trouble);
    CloseAll();
    EXPECT_EQ(Next(*stream), "n001,-n002");
    EXPECT_THAT(stream->message.nodes(1).error(),
                HasSubstr(trouble == Relay::Mode::kStall ? "did not answer within " : "cannot be reached"));
    EXPECT_EQ(Next(*stream), absl::StrCat("w", index, ":0!"));
    const absl::Time begin = absl::Now();
    CloseAll();
    EXPECT_EQ(Next(*stream), absl::StrCat("w", index + 1, ":0!"));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(8));
    relay->Set(Relay::Mode::kForward);
    EXPECT_EQ(Next(*stream), "n001,n002");
    EXPECT_EQ(Next(*stream), absl::StrCat("w", index, ":1")) << "what was missing follows";
    EXPECT_TRUE(stream->message.window().complete());
    EXPECT_EQ(Next(*stream), absl::StrCat("w", index + 1, ":1"));
    CloseAll();
    EXPECT_EQ(Next(*stream), absl::StrCat("w", index + 2, ":0,1"));
  }
  store_.RemoveNode("n002");  // its lease has ended
  EXPECT_EQ(Next(*stream), "n001");
}

TEST_F(JobWatchTest, NobodyHasTheJob) {
  Add(2);
  const auto stream = Watch(0);
  EXPECT_FALSE(stream->Read());
  const grpc::Status status = stream->reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("on the 2 nodes that answered"));
  const auto negative = Watch(0, -1);
  EXPECT_EQ(Next(*negative), "over 3");
}

TEST_F(JobWatchTest, AWatcherThatGoesAwayWhileOthersAreAskedGivesItsPlaceBack) {
  Add(1);
  RunOnEach(1);
  FakePeer hung([](const std::string&, const std::string&) { return FakePeer::Never(); });
  store_.AddNode("hung", hung.address());
  const auto first = Watch(0), second = Watch(0);
  ASSERT_TRUE(Await([&] { return hung.call_count >= 2; }));
  const auto third = Watch(0);
  EXPECT_EQ(Next(*third), "over 8") << "there may be two";
  const absl::Time begin = absl::Now();
  first->context.TryCancel();
  EXPECT_EQ(Next(*first), "over 1");
  EXPECT_TRUE(Await([&] { return hung.cancelled_count >= 1; }));
  EXPECT_TRUE(Await([&] {
    const auto next = Watch(0);
    const bool accepted = next->Read();
    next->context.TryCancel();
    next->reader->Finish();
    return accepted;
  }));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  EXPECT_EQ(Next(*second), "n001,-hung");
}

TEST_F(JobWatchTest, ShutDownEndsThemAtOnceAskingOrResting) {
  Add(2);
  RunOnEach(1);
  const auto resting = Watch(0);
  EXPECT_EQ(Next(*resting), "n001,n002");
  EXPECT_EQ(Next(*resting), "w0:0,1");
  FakePeer hung([](const std::string&, const std::string&) { return FakePeer::Never(); });
  store_.AddNode("hung", hung.address());
  const auto asking = Watch(1);
  ASSERT_TRUE(Await([&] { return hung.call_count >= 1; }));
  const absl::Time begin = absl::Now();
  for (const size_t daemon : {1, 0}) daemons_[daemon]->server->ShutDown(absl::Seconds(10));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  EXPECT_EQ(Next(*asking), "over 14");
  std::string last;
  while ((last = Next(*resting)).substr(0, 4) != "over") {  // it may have seen the other go
  }
  EXPECT_EQ(last, "over 14");
}

TEST_F(JobWatchTest, AWatcherIsToldWhatWasForgottenBeforeItWasTold) {
  registry_options_.window_history = 8;
  Add(2);
  RunOnEach(1);
  const auto slow = Watch(0), quick = Watch(0);
  for (Stream* stream : {slow.get(), quick.get()}) {
    EXPECT_EQ(Next(*stream), "n001,n002");
    EXPECT_EQ(Next(*stream), "w0:0,1");
  }
  int64_t seen = -1, missed = 0;
  const auto take = [&](Stream& stream, int64_t until) {
    while (seen < until && stream.Read()) {
      missed += stream.message.skipped_count();
      if (stream.message.has_window()) seen = stream.message.window().window_index();
    }
  };
  // The history runs over before the next question.
  for (int i = 0; i < 100; ++i) CloseAll();
  take(*quick, 100);
  EXPECT_EQ(seen, 100);
  EXPECT_GT(missed, 0);
  seen = -1;
  missed = 0;
  take(*slow, 100);
  EXPECT_EQ(seen, 100);
  EXPECT_GT(missed, 0);
}

TEST_F(JobWatchTest, WithoutACommonStoreTheFirstMessageSaysSo) {
  Add(nullptr);
  Run(0, {.rank = 0, .world_size = 2}, testing::kUid, 1);
  const auto stream = Watch(0);
  ASSERT_TRUE(stream->Read());
  ASSERT_EQ(stream->message.nodes_size(), 1);
  EXPECT_THAT(stream->message.nodes(0).note(), HasSubstr("no common store"));
  EXPECT_EQ(stream->message.window().window_index(), 0);
}

TEST_F(JobWatchTest, WatchersComeAndGoWhileDaemonsDo) {
  Add(3);
  RunOnEach(3);
  std::atomic<bool> stop = false;
  std::thread changes([&] {
    while (!stop) {
      store_.RemoveNode("n003");
      CloseAll();
      store_.AddNode("n003", Address(*daemons_[2]));
      CloseAll();
    }
  });
  for (int i = 0; i < 24; ++i) {
    const auto stream = Watch(static_cast<size_t>(i) % 2, i % 3 == 0 ? std::nullopt : std::optional<int64_t>(0));
    if (!stream->Read()) {  // the places of those before are not free yet
      EXPECT_EQ(stream->reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      continue;
    }
    for (int read = 0; read < i % 4; ++read) ASSERT_TRUE(stream->Read()) << stream->reader->Finish().error_message();
    stream->context.TryCancel();
    stream->reader->Finish();
  }
  stop = true;
  changes.join();
}

}  // namespace
}  // namespace gradgate
