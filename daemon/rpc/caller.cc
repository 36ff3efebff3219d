#include "daemon/rpc/caller.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "daemon/node/text_check.h"
#include "grpc/grpc_security_constants.h"

namespace gradgate {
namespace {

constexpr size_t kMaxSubjectBytes = 256;

std::vector<std::string> PropertiesOf(const grpc::AuthContext& auth, const char* name) {
  std::vector<std::string> all;
  for (const grpc::string_ref& value : auth.FindPropertyValues(name)) all.emplace_back(value.data(), value.size());
  return all;
}

// Whole characters.
std::string Shown(const std::string& text_untrusted) {
  const std::string text = IsPrintableUtf8(text_untrusted) ? text_untrusted : absl::CHexEscape(text_untrusted);
  size_t bytes = std::min(text.size(), kMaxSubjectBytes);
  while (bytes > 0 && bytes < text.size() && (text[bytes] & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

std::string FirstOf(const std::vector<std::string>& all) { return all.empty() ? "" : Shown(all.front()); }

// gRPC writes "ipv6:%5B::1%5D:80".
std::string AddressOf(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:")) absl::ConsumePrefix(&peer, "ipv6:");
  return absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
}

}  // namespace

void ReadCertificate(const grpc::AuthContext& auth, Caller* caller) {
  caller->subject = FirstOf(PropertiesOf(auth, GRPC_X509_SUBJECT_PROPERTY_NAME));
  caller->common_name = FirstOf(PropertiesOf(auth, GRPC_X509_CN_PROPERTY_NAME));
  caller->role = RoleOf(PropertiesOf(auth, GRPC_PEER_URI_PROPERTY_NAME), &caller->unknown_role);
}

Caller CallerOf(const grpc::AuthContext* auth, const std::string& peer, ConnectionTable* sockets) {
  Caller caller;
  const std::optional<uint32_t> uid = sockets != nullptr ? sockets->UidOf(peer) : std::nullopt;
  if (uid) {
    caller.transport = Transport::kSocket;
    caller.role = Role::kOperator;
    caller.uid = uid;
    return caller;
  }
  caller.address = Shown(AddressOf(peer));
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return caller;
  caller.transport = Transport::kTls;
  ReadCertificate(*auth, &caller);
  return caller;
}

v1::AuditCaller ToMessage(const Caller& caller) {
  v1::AuditCaller message;
  message.set_transport(caller.transport == Transport::kSocket ? v1::AUDIT_TRANSPORT_SOCKET
                        : caller.transport == Transport::kTls  ? v1::AUDIT_TRANSPORT_TLS
                                                               : v1::AUDIT_TRANSPORT_PLAIN_TCP);
  if (caller.uid) message.set_uid(*caller.uid);
  message.set_subject(caller.subject);
  message.set_role(std::string(Name(caller.role)));
  message.set_address(caller.address);
  return message;
}

}  // namespace gradgate
