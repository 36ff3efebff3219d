// Messages that were written before are read as what they were.

#include "tests/golden/messages.h"

#include <fstream>
#include <sstream>

#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace gradgate::golden {
namespace {

using google::protobuf::Message;

std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path << " is missing; ./dev docs makes it";
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(GoldenMessages, AreReadAsWhatTheyWere) {
  const auto messages = KeptMessages();
  EXPECT_GT(messages.size(), 20u);
  for (const auto& kept : messages) {
    SCOPED_TRACE(kept->GetTypeName());
    const std::string path = std::string(GOLDEN_DIR) + "/messages/" + kept->GetTypeName();
    const std::unique_ptr<Message> read(kept->New()), told(kept->New());
    ASSERT_TRUE(read->ParseFromString(Contents(path + ".binpb")));
    EXPECT_FALSE(HasUnknown(*read)) << "a field of it has lost its number";
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(Contents(path + ".txtpb"), told.get()))
        << "a field of it has lost its name";
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*read, *told));
  }
}

// What nobody here knows is kept as it is: a daemon of today hands on what one of tomorrow has sent.
TEST(GoldenMessages, FieldsOfTomorrowAreSeenAsUnknown) {
  const auto messages = KeptMessages();
  Message& message = *messages.front();
  Fill(&message);
  EXPECT_FALSE(HasUnknown(message));
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(1000, 1);
  EXPECT_TRUE(HasUnknown(message));
  const std::unique_ptr<Message> read(message.New());
  ASSERT_TRUE(read->ParseFromString(message.SerializeAsString()));
  EXPECT_TRUE(HasUnknown(*read));
}

}  // namespace
}  // namespace gradgate::golden
