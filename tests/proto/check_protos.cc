// check_protos BASELINE PROTO_DIR [--accept]: compares our .proto files, as this build has them, with what is kept in BASELINE;
// a line for each break, exit 1 if there are any, or if the baseline lacks something that has been added. --accept takes over
// what was added, and refuses while anything is broken. --accept_breaks takes over all.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <string>

#include "tests/proto/breaking.h"

namespace {

using google::protobuf::FileDescriptorSet;

// Files in the tree that this program does not know.
int Unknown(const std::filesystem::path& folder, const FileDescriptorSet& now) {
  std::set<std::string> known;
  for (const auto& file : now.file()) known.insert(file.name());
  int unknown = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = std::filesystem::relative(entry.path(), folder).generic_string();
    if (entry.path().extension() != ".proto" || known.count(name) > 0) continue;
    std::cout << name << ": not compared; add it to tests/proto/present_files.cc\n";
    ++unknown;
  }
  return unknown;
}

int Accept(const std::string& path, const FileDescriptorSet& now) {
  std::ofstream out(path, std::ios::binary);
  now.SerializeToOstream(&out);
  std::cout << path << ": written, " << now.file_size() << " files\n";
  return out.flush() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fputs("check_protos BASELINE PROTO_DIR [--accept]\n", stderr), 2;
  const std::string path = argv[1], option = argc > 3 ? argv[3] : "";
  const FileDescriptorSet now = gradgate::test::PresentFiles();
  if (option == "--accept_breaks") return Accept(path, now);
  FileDescriptorSet before;
  std::ifstream in(path, std::ios::binary);
  if (!before.ParseFromIstream(&in)) return std::cerr << path << ": cannot be read as a FileDescriptorSet\n", 2;
  const auto breaks = gradgate::test::Breaks(before, now);
  for (const std::string& line : breaks) std::cout << line << "\n";
  if (!breaks.empty()) {
    std::cout
        << "These break programs and stored values of before. Where nobody can have any: check_protos … --accept_breaks\n";
    return 1;
  }
  if (option == "--accept") return Accept(path, now);
  const int unknown = Unknown(argv[2], now);
  if (before.SerializeAsString() != now.SerializeAsString()) {
    std::cout << "The baseline lacks what was added, which breaks nothing: ./dev docs takes it over\n";
    return 1;
  }
  return unknown == 0 ? 0 : 1;
}
