#include "tests/proto/breaking.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gradgate::test {
namespace {

using google::protobuf::DescriptorProto;
using google::protobuf::EnumDescriptorProto;
using google::protobuf::EnumValueDescriptorProto;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using google::protobuf::MethodDescriptorProto;
using google::protobuf::ServiceDescriptorProto;
using Lines = std::vector<std::string>;

template <typename Things>
auto ByName(const Things& things, const std::string& name) {
  const auto at = std::find_if(things.begin(), things.end(), [&](const auto& one) { return one.name() == name; });
  return at == things.end() ? nullptr : &*at;
}

template <typename Things>
auto ByNumber(const Things& things, int number) {
  const auto at = std::find_if(things.begin(), things.end(), [&](const auto& one) { return one.number() == number; });
  return at == things.end() ? nullptr : &*at;
}

// A message's reserved ranges end before `end`, an enum's with it.
bool Reserves(const DescriptorProto& message, int number) {
  return std::any_of(message.reserved_range().begin(), message.reserved_range().end(),
                     [number](const auto& range) { return range.start() <= number && number < range.end(); });
}
bool Reserves(const EnumDescriptorProto& type, int number) {
  return std::any_of(type.reserved_range().begin(), type.reserved_range().end(),
                     [number](const auto& range) { return range.start() <= number && number <= range.end(); });
}
template <typename Type>
bool Reserves(const Type& type, const std::string& name) {
  return std::find(type.reserved_name().begin(), type.reserved_name().end(), name) != type.reserved_name().end();
}

void Different(const std::string& where, const std::string& what, const std::string& before, const std::string& now,
               const std::string& remedy, Lines* lines) {
  if (before != now) lines->push_back(absl::StrCat(where, ": ", what, " was ", before, ", is ", now, "; ", remedy));
}

// Of messages and enums alike: what was reserved stays so.
template <typename Type>
void CheckReserved(const Type& before, const Type& now, const std::string& where, Lines* lines) {
  for (const auto& range : before.reserved_range()) {
    if (!Reserves(now, range.start())) {
      lines->push_back(
          absl::StrCat(where, ": ", range.start(), " is no longer reserved; old messages may hold it: reserve it again"));
    }
  }
  for (const std::string& name : before.reserved_name()) {
    if (!Reserves(now, name)) lines->push_back(absl::StrCat(where, ": \"", name, "\" is no longer reserved; reserve it again"));
  }
}

template <typename Type>
void Gone(const Type& now, const std::string& where, int number, const std::string& name, Lines* lines) {
  if (Reserves(now, number) && Reserves(now, name)) return;
  lines->push_back(
      absl::StrCat(where, " = ", number, " is gone; give it back, or say `reserved ", number, "; reserved \"", name, "\";`"));
}

std::string OneofOf(const DescriptorProto& message, const FieldDescriptorProto& field) {
  return field.has_oneof_index() ? message.oneof_decl(field.oneof_index()).name() : "no oneof";
}

void CheckFields(const DescriptorProto& before, const DescriptorProto& now, const std::string& where, Lines* lines) {
  for (const FieldDescriptorProto& field : before.field()) {
    const std::string path = absl::StrCat(where, ".", field.name());
    const FieldDescriptorProto* const same = ByNumber(now.field(), field.number());
    if (same == nullptr) {
      Gone(now, path, field.number(), field.name(), lines);
      continue;
    }
    const std::string remedy = "keep it, and add another field with a number of its own";
    Different(path, "its name", field.name(), same->name(), "names are JSON's: " + remedy, lines);
    Different(path, "its type", FieldDescriptorProto::Type_Name(field.type()), FieldDescriptorProto::Type_Name(same->type()),
              remedy, lines);
    Different(path, "its type", field.type_name(), same->type_name(), remedy, lines);
    Different(path, "its label", FieldDescriptorProto::Label_Name(field.label()),
              FieldDescriptorProto::Label_Name(same->label()), remedy, lines);
    Different(path, "its place", OneofOf(before, field), OneofOf(now, *same), remedy, lines);
    Different(path, "its JSON name", field.json_name(), same->json_name(), remedy, lines);
  }
}

void CheckEnum(const EnumDescriptorProto& before, const EnumDescriptorProto& now, const std::string& where, Lines* lines) {
  for (const EnumValueDescriptorProto& value : before.value()) {
    const EnumValueDescriptorProto* const same = ByNumber(now.value(), value.number());
    const std::string path = absl::StrCat(where, ".", value.name());
    if (same == nullptr) {
      Gone(now, path, value.number(), value.name(), lines);
    } else {
      Different(path, "its name", value.name(), same->name(), "names are JSON's: keep it, and add another value", lines);
    }
  }
  CheckReserved(before, now, where, lines);
}

template <typename Enums>
void CheckEnums(const Enums& before, const Enums& now, const std::string& scope, Lines* lines) {
  for (const EnumDescriptorProto& type : before) {
    const EnumDescriptorProto* const same = ByName(now, type.name());
    const std::string where = absl::StrCat(scope, type.name());
    if (same == nullptr) {
      lines->push_back(absl::StrCat("enum ", where, " is gone; give it back"));
    } else {
      CheckEnum(type, *same, where, lines);
    }
  }
}

template <typename Messages>
void CheckMessages(const Messages& before, const Messages& now, const std::string& scope, Lines* lines) {
  for (const DescriptorProto& message : before) {
    const DescriptorProto* const same = ByName(now, message.name());
    const std::string where = absl::StrCat(scope, message.name());
    if (same == nullptr) {
      lines->push_back(absl::StrCat("message ", where, " is gone; give it back"));
      continue;
    }
    CheckFields(message, *same, where, lines);
    CheckReserved(message, *same, where, lines);
    CheckEnums(message.enum_type(), same->enum_type(), where + ".", lines);
    CheckMessages(message.nested_type(), same->nested_type(), where + ".", lines);
  }
}

std::string Stream(bool streams, const std::string& type) { return streams ? "stream " + type : type; }

void CheckServices(const FileDescriptorProto& before, const FileDescriptorProto& now, Lines* lines) {
  for (const ServiceDescriptorProto& service : before.service()) {
    const ServiceDescriptorProto* const same = ByName(now.service(), service.name());
    if (same == nullptr) {
      lines->push_back(absl::StrCat("service ", service.name(), " is gone; give it back"));
      continue;
    }
    for (const MethodDescriptorProto& method : service.method()) {
      const std::string where = absl::StrCat(service.name(), ".", method.name());
      const MethodDescriptorProto* const now_method = ByName(same->method(), method.name());
      if (now_method == nullptr) {
        lines->push_back(absl::StrCat("rpc ", where, " is gone; give it back: old clients call it"));
        continue;
      }
      const std::string remedy = "keep it, and add another rpc";
      Different(where, "its request", Stream(method.client_streaming(), method.input_type()),
                Stream(now_method->client_streaming(), now_method->input_type()), remedy, lines);
      Different(where, "its response", Stream(method.server_streaming(), method.output_type()),
                Stream(now_method->server_streaming(), now_method->output_type()), remedy, lines);
    }
  }
}

}  // namespace

Lines Breaks(const FileDescriptorSet& before, const FileDescriptorSet& now) {
  Lines lines;
  for (const FileDescriptorProto& file : before.file()) {
    const FileDescriptorProto* const same = ByName(now.file(), file.name());
    if (same == nullptr) {
      lines.push_back(absl::StrCat(file.name(), " is gone; give it back"));
      continue;
    }
    Lines found;
    Different("package", "it", file.package(), same->package(), "give it back; another package is a v2 beside this one",
              &found);
    Different("syntax", "it", file.syntax(), same->syntax(), "give it back", &found);
    CheckEnums(file.enum_type(), same->enum_type(), "", &found);
    CheckMessages(file.message_type(), same->message_type(), "", &found);
    CheckServices(file, *same, &found);
    for (const std::string& line : found) lines.push_back(absl::StrCat(file.name(), ": ", line));
  }
  return lines;
}

}  // namespace gradgate::test
