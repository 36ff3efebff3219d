// record_messages DIR: writes a golden file of each message that has none yet, as bytes and as text. What is there stays: it is
// what programs of then have sent.

#include <filesystem>
#include <fstream>
#include <iostream>

#include "google/protobuf/text_format.h"
#include "tests/golden/messages.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int made = 0;
  for (const auto& message : gradgate::golden::KeptMessages()) {
    const std::string path = std::string(argv[1]) + "/" + message->GetTypeName();
    if (std::filesystem::exists(path + ".binpb")) continue;
    gradgate::golden::Fill(message.get());
    std::string text;
    google::protobuf::TextFormat::PrintToString(*message, &text);
    std::ofstream(path + ".txtpb") << text;
    std::ofstream(path + ".binpb", std::ios::binary) << message->SerializeAsString();
    ++made;
  }
  std::cout << "golden messages: " << made << " made\n";
  return 0;
}
