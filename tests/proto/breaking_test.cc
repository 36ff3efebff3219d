// Each kind of break is found, and named with its remedy; additions are none.

#include "tests/proto/breaking.h"

#include <functional>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace gradgate::test {
namespace {

using google::protobuf::DescriptorProto;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSample[] = R"(
  name: "a/x.proto" package: "a" syntax: "proto3"
  message_type {
    name: "M"
    field { name: "one" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL json_name: "one" }
    field { name: "two" number: 2 type: TYPE_MESSAGE type_name: ".a.M.N" label: LABEL_REPEATED json_name: "two" }
    field { name: "three" number: 3 type: TYPE_ENUM type_name: ".a.E" label: LABEL_OPTIONAL oneof_index: 0 json_name: "three" }
    nested_type { name: "N" field { name: "in" number: 1 type: TYPE_BOOL label: LABEL_OPTIONAL } enum_type { name: "F" value { name: "F_0" number: 0 } } }
    oneof_decl { name: "choice" }
    reserved_range { start: 8 end: 9 }
    reserved_name: "old"
  }
  enum_type {
    name: "E"
    value { name: "E_UNSPECIFIED" number: 0 } value { name: "E_A" number: 1 }
    reserved_range { start: 4 end: 4 } reserved_name: "E_OLD"
  }
  service {
    name: "S"
    method { name: "Get" input_type: ".a.M" output_type: ".a.M" }
    method { name: "Watch" input_type: ".a.M" output_type: ".a.M" server_streaming: true }
  }
)";

FileDescriptorSet Sample() {
  FileDescriptorSet set;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kSample, set.add_file()));
  return set;
}

// What is said of the sample once `change` was made to it.
std::vector<std::string> After(const std::function<void(FileDescriptorProto&)>& change) {
  FileDescriptorSet now = Sample();
  change(*now.mutable_file(0));
  return Breaks(Sample(), now);
}

TEST(Breaks, NothingBreaksNothing) { EXPECT_THAT(Breaks(Sample(), Sample()), IsEmpty()); }

TEST(Breaks, AdditionsAreNone) {
  EXPECT_THAT(After([](FileDescriptorProto& file) {
                FieldDescriptorProto* field = file.mutable_message_type(0)->add_field();
                field->set_name("four");
                field->set_number(4);
                file.add_message_type()->set_name("New");
                file.add_enum_type()->set_name("New2");
                auto* value = file.mutable_enum_type(0)->add_value();
                value->set_name("E_B");
                value->set_number(2);
                file.add_service()->set_name("New3");
                file.mutable_service(0)->add_method()->set_name("List");
                file.mutable_message_type(0)->add_reserved_name("never");
              }),
              IsEmpty());
  FileDescriptorSet now = Sample();
  now.add_file()->set_name("a/new.proto");
  EXPECT_THAT(Breaks(Sample(), now), IsEmpty());
}

struct Case {
  const char* what;
  std::function<void(FileDescriptorProto&)> change;
  const char* said;
};

DescriptorProto& M(FileDescriptorProto& file) { return *file.mutable_message_type(0); }

class EachBreak : public ::testing::TestWithParam<Case> {};

TEST_P(EachBreak, IsFoundAndNamed) { EXPECT_THAT(After(GetParam().change), ElementsAre(HasSubstr(GetParam().said))); }

INSTANTIATE_TEST_SUITE_P(
    All, EachBreak,
    ::testing::Values(
        Case{"File", [](FileDescriptorProto& f) { f.set_name("a/y.proto"); }, "a/x.proto is gone"},
        Case{"Package", [](FileDescriptorProto& f) { f.set_package("b"); }, "package: it was a, is b; give it back"},
        Case{"Syntax", [](FileDescriptorProto& f) { f.set_syntax("proto2"); }, "syntax: it was proto3, is proto2"},
        Case{"Message", [](FileDescriptorProto& f) { f.clear_message_type(); }, "message M is gone"},
        Case{"NestedMessage", [](FileDescriptorProto& f) { M(f).clear_nested_type(); }, "message M.N is gone"},
        Case{"Enum", [](FileDescriptorProto& f) { f.clear_enum_type(); }, "enum E is gone"},
        Case{"NestedEnum", [](FileDescriptorProto& f) { M(f).mutable_nested_type(0)->clear_enum_type(); },
             "enum M.N.F is gone"},
        Case{"Field", [](FileDescriptorProto& f) { M(f).mutable_field()->DeleteSubrange(0, 1); },
             "M.one = 1 is gone; give it back, or say `reserved 1; reserved \"one\";`"},
        Case{"FieldWhoseNumberAloneIsReserved",
             [](FileDescriptorProto& f) {
               M(f).mutable_field()->DeleteSubrange(0, 1);
               M(f).add_reserved_range()->set_start(1);
               M(f).mutable_reserved_range(1)->set_end(2);
             },
             "M.one = 1 is gone"},
        Case{"FieldWhoseNameAloneIsReserved",
             [](FileDescriptorProto& f) {
               M(f).mutable_field()->DeleteSubrange(0, 1);
               M(f).add_reserved_name("one");
             },
             "M.one = 1 is gone"},
        Case{"NestedField", [](FileDescriptorProto& f) { M(f).mutable_nested_type(0)->clear_field(); }, "M.N.in = 1 is gone"},
        Case{"Number", [](FileDescriptorProto& f) { M(f).mutable_field(0)->set_number(7); }, "M.one = 1 is gone"},
        Case{"Type", [](FileDescriptorProto& f) { M(f).mutable_field(0)->set_type(FieldDescriptorProto::TYPE_INT32); },
             "M.one: its type was TYPE_INT64, is TYPE_INT32; keep it, and add another field"},
        Case{"TypeName", [](FileDescriptorProto& f) { M(f).mutable_field(1)->set_type_name(".a.Other"); },
             "M.two: its type was .a.M.N, is .a.Other"},
        Case{"Label", [](FileDescriptorProto& f) { M(f).mutable_field(1)->set_label(FieldDescriptorProto::LABEL_OPTIONAL); },
             "M.two: its label was LABEL_REPEATED, is LABEL_OPTIONAL"},
        Case{"Name", [](FileDescriptorProto& f) { M(f).mutable_field(0)->set_name("uno"); },
             "M.one: its name was one, is uno; names are JSON's"},
        Case{"JsonName", [](FileDescriptorProto& f) { M(f).mutable_field(0)->set_json_name("uno"); },
             "M.one: its JSON name was one, is uno"},
        Case{"OutOfAOneof", [](FileDescriptorProto& f) { M(f).mutable_field(2)->clear_oneof_index(); },
             "M.three: its place was choice, is no oneof"},
        Case{"IntoAOneof", [](FileDescriptorProto& f) { M(f).mutable_field(0)->set_oneof_index(0); },
             "M.one: its place was no oneof, is choice"},
        Case{"ReservedNumber", [](FileDescriptorProto& f) { M(f).clear_reserved_range(); }, "M: 8 is no longer reserved"},
        Case{"ReservedName", [](FileDescriptorProto& f) { M(f).clear_reserved_name(); }, "M: \"old\" is no longer reserved"},
        Case{"Value", [](FileDescriptorProto& f) { f.mutable_enum_type(0)->mutable_value()->RemoveLast(); },
             "E.E_A = 1 is gone"},
        Case{"ValueNumber", [](FileDescriptorProto& f) { f.mutable_enum_type(0)->mutable_value(1)->set_number(2); },
             "E.E_A = 1 is gone"},
        Case{"ValueName", [](FileDescriptorProto& f) { f.mutable_enum_type(0)->mutable_value(1)->set_name("E_Z"); },
             "E.E_A: its name was E_A, is E_Z"},
        Case{"EnumReservedNumber", [](FileDescriptorProto& f) { f.mutable_enum_type(0)->clear_reserved_range(); },
             "E: 4 is no longer reserved"},
        Case{"EnumReservedName", [](FileDescriptorProto& f) { f.mutable_enum_type(0)->clear_reserved_name(); },
             "E: \"E_OLD\" is no longer reserved"},
        Case{"Service", [](FileDescriptorProto& f) { f.clear_service(); }, "service S is gone"},
        Case{"Method", [](FileDescriptorProto& f) { f.mutable_service(0)->mutable_method()->RemoveLast(); },
             "rpc S.Watch is gone; give it back: old clients call it"},
        Case{"Request", [](FileDescriptorProto& f) { f.mutable_service(0)->mutable_method(0)->set_input_type(".a.New"); },
             "S.Get: its request was .a.M, is .a.New"},
        Case{"Response", [](FileDescriptorProto& f) { f.mutable_service(0)->mutable_method(0)->set_output_type(".a.New"); },
             "S.Get: its response was .a.M, is .a.New"},
        Case{"RequestStream",
             [](FileDescriptorProto& f) { f.mutable_service(0)->mutable_method(0)->set_client_streaming(true); },
             "S.Get: its request was .a.M, is stream .a.M"},
        Case{"ResponseStream",
             [](FileDescriptorProto& f) { f.mutable_service(0)->mutable_method(1)->set_server_streaming(false); },
             "S.Watch: its response was stream .a.M, is .a.M"}),
    [](const auto& one) { return one.param.what; });

TEST(Breaks, AFieldOrValueMayGoOnceNumberAndNameAreReserved) {
  EXPECT_THAT(After([](FileDescriptorProto& file) {
                M(file).mutable_field()->DeleteSubrange(0, 1);
                M(file).add_reserved_range()->set_start(1);
                M(file).mutable_reserved_range(1)->set_end(2);
                M(file).add_reserved_name("one");
                file.mutable_enum_type(0)->mutable_value()->RemoveLast();
                file.mutable_enum_type(0)->add_reserved_range()->set_start(1);
                file.mutable_enum_type(0)->mutable_reserved_range(1)->set_end(1);
                file.mutable_enum_type(0)->add_reserved_name("E_A");
              }),
              IsEmpty());
}

// The same on what is really kept: one break somewhere in our own files is seen.
TEST(Breaks, AreSeenInOurOwnFiles) {
  const FileDescriptorSet before = PresentFiles();
  FileDescriptorSet now = before;
  for (FileDescriptorProto& file : *now.mutable_file()) {
    for (DescriptorProto& message : *file.mutable_message_type()) {
      if (message.name() == "RankStats") message.mutable_field()->DeleteSubrange(2, 1);
    }
  }
  EXPECT_EQ(Breaks(before, now).size(), 1u);
  EXPECT_THAT(Breaks(before, before), IsEmpty());
}

}  // namespace
}  // namespace gradgate::test
