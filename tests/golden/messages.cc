#include "tests/golden/messages.h"

#include <map>

#include "google/protobuf/descriptor.h"
#include "tests/proto/breaking.h"

namespace gradgate::golden {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void SetScalar(Message* message, const FieldDescriptor* field, int value) {
  const Reflection* const reflection = message->GetReflection();
  const bool repeated = field->is_repeated();
  const std::string text = std::string(field->name()) + " " + std::to_string(value);
  const auto set = [&](auto add, auto put, auto what) {
    repeated ? (reflection->*add)(message, field, what) : (reflection->*put)(message, field, what);
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return set(&Reflection::AddInt32, &Reflection::SetInt32, int32_t{value});
    case FieldDescriptor::CPPTYPE_UINT32:
      return set(&Reflection::AddUInt32, &Reflection::SetUInt32, static_cast<uint32_t>(value));
    case FieldDescriptor::CPPTYPE_INT64:
      return set(&Reflection::AddInt64, &Reflection::SetInt64, int64_t{value} << 33);
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(&Reflection::AddUInt64, &Reflection::SetUInt64, static_cast<uint64_t>(value) << 33);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set(&Reflection::AddDouble, &Reflection::SetDouble, value + 0.5);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return set(&Reflection::AddFloat, &Reflection::SetFloat, static_cast<float>(value) + 0.5F);
    case FieldDescriptor::CPPTYPE_BOOL:
      return set(&Reflection::AddBool, &Reflection::SetBool, true);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumDescriptor* const type = field->enum_type();
      return set(&Reflection::AddEnumValue, &Reflection::SetEnumValue, type->value(type->value_count() - 1)->number());
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return repeated ? reflection->AddString(message, field, text) : reflection->SetString(message, field, text);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
  }
}

}  // namespace

std::vector<std::unique_ptr<Message>> KeptMessages() {
  std::map<std::string, const Descriptor*> kept;
  const google::protobuf::FileDescriptorSet files = test::PresentFiles();
  for (const auto& file : files.file()) {
    const FileDescriptor* const known = DescriptorPool::generated_pool()->FindFileByName(file.name());
    if (known->package() == "etcdserverpb") continue;  // etcd's own
    for (int i = 0; i < known->service_count(); ++i) {
      for (int j = 0; j < known->service(i)->method_count(); ++j) {
        for (const Descriptor* type :
             {known->service(i)->method(j)->input_type(), known->service(i)->method(j)->output_type()}) {
          kept[type->full_name()] = type;
        }
      }
    }
    const bool written = known->package() == "gradgate.store.v1" || known->name() == "gradgate/v1/audit.proto";
    if (!written) continue;
    for (int i = 0; i < known->message_type_count(); ++i) kept[known->message_type(i)->full_name()] = known->message_type(i);
  }
  std::vector<std::unique_ptr<Message>> messages;
  for (const auto& [name, type] : kept) {
    messages.emplace_back(google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
  }
  return messages;
}

void Fill(Message* message, int depth) {
  const Reflection* const reflection = message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = message->GetDescriptor()->field(i);
    for (int copy = 0; copy < (field->is_repeated() ? 2 : 1); ++copy) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        SetScalar(message, field, field->number() * 10 + depth + copy);
      } else if (depth > 0) {
        Fill(field->is_repeated() ? reflection->AddMessage(message, field) : reflection->MutableMessage(message, field),
             depth - 1);
      }
    }
  }
}

bool HasUnknown(const Message& message) {
  const Reflection* const reflection = message.GetReflection();
  if (!reflection->GetUnknownFields(message).empty()) return true;
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (HasUnknown(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                          : reflection->GetMessage(message, field))) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace gradgate::golden
