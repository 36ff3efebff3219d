// The messages that golden files are kept of: requests and answers of all our services, and what lies in stores and logs.

#ifndef GRADGATE_TESTS_GOLDEN_MESSAGES_H_
#define GRADGATE_TESTS_GOLDEN_MESSAGES_H_

#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/message.h"

namespace gradgate::golden {

// By full name; empty messages of this build.
std::vector<std::unique_ptr<google::protobuf::Message>> KeptMessages();

// Gives every field a value that depends on nothing but its number and depth, lists two; `depth` levels of messages within each
// other.
void Fill(google::protobuf::Message* message, int depth = 5);

// Whether anything in it, at any depth, has no field in this build.
bool HasUnknown(const google::protobuf::Message& message);

}  // namespace gradgate::golden

#endif  // GRADGATE_TESTS_GOLDEN_MESSAGES_H_
