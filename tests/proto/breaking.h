// What a change of our .proto files breaks for programs, and stored values, that were made with the former ones. Pure
// functions; any thread.
//
// The rules are those of buf's categories FILE and WIRE_JSON: nothing that has a name or a number may go, move, or become
// something else; a field or value may go if its number and its name are reserved; what is reserved stays so. Adding is free.

#ifndef GRADGATE_TESTS_PROTO_BREAKING_H_
#define GRADGATE_TESTS_PROTO_BREAKING_H_

#include <string>
#include <vector>

#include "google/protobuf/descriptor.pb.h"

namespace gradgate::test {

// A line for each break: where, what, what to do instead. Empty: `now` reads and writes what `before` does.
std::vector<std::string> Breaks(const google::protobuf::FileDescriptorSet& before,
                                const google::protobuf::FileDescriptorSet& now);

// Every .proto file that is ours, as this build has it, by name.
google::protobuf::FileDescriptorSet PresentFiles();

}  // namespace gradgate::test

#endif  // GRADGATE_TESTS_PROTO_BREAKING_H_
