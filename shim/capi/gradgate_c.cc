// gradgate.h over the shim's classes: checks arguments, converts, and lets no exception out.

#include <cstdlib>
#include <string>

#include "shim/capi/callback_store.h"
#include "shim/capi/convert.h"
#include "shim/capi/handles.h"
#include "shim/capi/read_stats.h"
#include "shim/capi/resolve_options.h"
#include "shim/capi/session.h"
#include "shim/include/gradgate/gradgate.h"
#include "shim/reduce/file_store.h"
#include "shim/reduce/gloo/open_gloo.h"
#include "shim/reduce/tcp_store.h"

namespace gradgate {
namespace {

constexpr int64_t kMinute = 60'000'000'000;

// "tcp://host:port"; the host of an IPv6 address stands in brackets.
Status ParseTcp(const std::string& url, std::string* host, uint16_t* port) {
  const std::string rest = url.substr(6);
  const size_t colon = rest.rfind(':');
  char* end = nullptr;
  const unsigned long number = colon == std::string::npos ? 0 : std::strtoul(rest.c_str() + colon + 1, &end, 10);
  if (colon == std::string::npos || colon == 0 || number == 0 || number > 65535 || *end != '\0') {
    return InvalidArgument("store url \"" + url + "\" is not tcp://host:port");
  }
  *host = rest.substr(0, colon);
  if (host->size() > 2 && host->front() == '[' && host->back() == ']') *host = host->substr(1, host->size() - 2);
  *port = static_cast<uint16_t>(number);
  return OkStatus();
}

Status OpenStore(const gg_store_options* in, gg_store** out) {
  gg_store_options options = GG_STORE_OPTIONS_INIT;
  const Status read = ReadStruct(in, "options", &options);
  if (!read.ok()) return read;
  if (!out) return IsNull("out");
  if (!options.url) return IsNull("options.url");
  if (options.serve > 1) return InvalidArgument("options.serve is " + std::to_string(options.serve) + "; it is 0 or 1");
  if (options.deadline_ns < 0) return InvalidArgument("options.deadline_ns is negative; 0 means the default");
  const std::string url = options.url;
  auto handle = std::make_unique<gg_store>();
  if (url.rfind("file:///", 0) == 0 && url.size() > 8) {
    handle->store = std::make_unique<FileStore>(url.substr(7));
  } else if (url.rfind("tcp://", 0) == 0) {
    std::string host;
    uint16_t port = 0;
    const Status parsed = ParseTcp(url, &host, &port);
    if (!parsed.ok()) return parsed;
    const Status opened =
        TcpStore::Open(host, port, options.serve == 1, DeadlineOrDefault(options.deadline_ns, kMinute), &handle->store);
    if (!opened.ok()) return opened;
  } else {
    return InvalidArgument("store url \"" + url + "\" is not known; use file:///a/shared/directory or tcp://host:port");
  }
  *out = handle.release();
  return OkStatus();
}

Status OpenGloo(const gg_gloo_options* in, gg_transport** out) {
  gg_gloo_options options = GG_GLOO_OPTIONS_INIT;
  const Status read = ReadStruct(in, "options", &options);
  if (!read.ok()) return read;
  if (!out) return IsNull("out");
  if (!options.store) return IsNull("options.store");
  if (options.store->foreign())
    return FailedPrecondition("options.store belongs to the parent process; a forked child opens its own");
  if (options.world_size == 0) return InvalidArgument("options.world_size is 0; it is the number of ranks");
  if (options.rank >= options.world_size) {
    return InvalidArgument("options.rank is " + std::to_string(options.rank) + " in a world of " +
                           std::to_string(options.world_size));
  }
  if (options.deadline_ns < 0) return InvalidArgument("options.deadline_ns is negative; 0 means the default");
  auto handle = std::make_unique<gg_transport>();
  GlooOptions gloo;
  gloo.rank = options.rank;
  gloo.world_size = options.world_size;
  gloo.store = options.store->store.get();
  gloo.interface_name = options.interface_name ? options.interface_name : "";
  gloo.group_name = std::string(options.group_name ? options.group_name : "dp") + "/" +
                    std::to_string(AttemptFromEnvironment()) + "/" + std::to_string(options.store->groups.fetch_add(1));
  gloo.timeout_ns = DeadlineOrDefault(options.deadline_ns, kMinute);
  const Status opened = OpenGlooTransport(gloo, &handle->transport);
  if (opened.ok()) *out = handle.release();
  return opened;
}

Status CreateSession(const gg_session_options* in, gg_session** out) {
  gg_session_options options = GG_SESSION_OPTIONS_INIT;
  const Status read = ReadStruct(in, "options", &options);
  if (!read.ok()) return read;
  if (!out) return IsNull("out");
  SessionOptions resolved;
  const Status checked = ResolveOptions(options, &resolved);
  if (!checked.ok()) return checked;
  auto handle = std::make_unique<gg_session>();
  const Status created = Session::Create(std::move(resolved), &handle->session);
  if (created.ok()) *out = handle.release();
  return created;
}

}  // namespace
}  // namespace gradgate

using gradgate::Guarded;
using gradgate::InvalidArgument;
using gradgate::IsNull;
using gradgate::OkStatus;
using gradgate::Status;

extern "C" {

uint32_t gg_abi_version(void) { return GG_ABI_MAJOR << 16 | GG_ABI_MINOR; }

const char* gg_version(void) { return GRADGATE_VERSION; }

const char* gg_status_name(gg_status_t status) {
  switch (status) {
    case GG_OK:
      return "OK";
    case GG_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case GG_DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case GG_NOT_FOUND:
      return "NOT_FOUND";
    case GG_RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case GG_FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case GG_ABORTED:
      return "ABORTED";
    case GG_UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    case GG_INTERNAL:
      return "INTERNAL";
    case GG_UNAVAILABLE:
      return "UNAVAILABLE";
    default:
      return "UNKNOWN";
  }
}

gg_status_t gg_store_open(const gg_store_options* options, gg_store** out, gg_error* error) {
  return Guarded(error, [&] { return gradgate::OpenStore(options, out); });
}

gg_status_t gg_store_create(const gg_store_callbacks* callbacks, gg_store** out, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    gg_store_callbacks known = GG_STORE_CALLBACKS_INIT;
    const Status read = gradgate::ReadStruct(callbacks, "callbacks", &known);
    if (!read.ok()) return read;
    if (!out) return IsNull("out");
    if (!known.set) return IsNull("callbacks.set");
    if (!known.get) return IsNull("callbacks.get");
    auto handle = std::make_unique<gg_store>();
    handle->store = std::make_unique<gradgate::CallbackStore>(known);
    *out = handle.release();
    return OkStatus();
  });
}

void gg_store_destroy(gg_store* store) {
  if (store && !store->foreign()) delete store;
}

gg_status_t gg_transport_open_gloo(const gg_gloo_options* options, gg_transport** out, gg_error* error) {
  return Guarded(error, [&] { return gradgate::OpenGloo(options, out); });
}

void gg_transport_destroy(gg_transport* transport) {
  if (transport && !transport->foreign()) delete transport;
}

gg_status_t gg_session_create(const gg_session_options* options, gg_session** out, gg_error* error) {
  return Guarded(error, [&] { return gradgate::CreateSession(options, out); });
}

gg_status_t gg_session_gradient(gg_session* session, uint32_t tensor, void** out, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!session) return IsNull("session");
    if (!out) return IsNull("out");
    const gradgate::Reducer& reducer = session->session->reducer();
    if (tensor >= reducer.tensor_count()) {
      return InvalidArgument("tensor " + std::to_string(tensor) + " does not exist; the session has " +
                             std::to_string(reducer.tensor_count()));
    }
    *out = reducer.gradient(tensor);
    return OkStatus();
  });
}

gg_status_t gg_micro_step_begin(gg_session* session, const gg_micro_step* micro_step, uint32_t* boundary, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!session) return IsNull("session");
    if (!boundary) return IsNull("boundary");
    // Field by field where it is of our age: copying it whole would wait for the caller's stores.
    gg_micro_step copy = GG_MICRO_STEP_INIT;
    const gg_micro_step* known = &copy;
    if (micro_step && micro_step->struct_size == sizeof(copy)) {
      known = micro_step;
    } else if (micro_step) {
      Status read = gradgate::ReadStruct(micro_step, "micro_step", &copy);
      if (!read.ok()) return read;
    }
    const uint32_t last = known->last;
    const int64_t item_count = known->item_count;
    if (last > GG_LAST_YES) return InvalidArgument("micro_step.last is " + std::to_string(last) + "; use a GG_LAST_ constant");
    if (item_count < 0 || item_count > GG_MAX_ITEM_COUNT) {
      return InvalidArgument("micro_step.item_count is " + std::to_string(item_count) + "; it must be between 0 and 2^40");
    }
    bool reduces = false;
    Status begun = session->session->BeginMicroStep(static_cast<gradgate::Last>(last), item_count, &reduces);
    if (begun.ok()) *boundary = reduces ? 1 : 0;
    return begun;
  });
}

gg_status_t gg_gradient_ready(gg_session* session, uint32_t tensor, gg_error* error) {
  return Guarded(error, [&] { return session ? session->session->GradientReady(tensor) : IsNull("session"); });
}

gg_status_t gg_micro_step_end(gg_session* session, gg_error* error) {
  return Guarded(error, [&] { return session ? session->session->EndMicroStep() : IsNull("session"); });
}

gg_status_t gg_micro_step_abandon(gg_session* session, gg_error* error) {
  return Guarded(error, [&] { return session ? session->session->AbandonMicroStep() : IsNull("session"); });
}

gg_status_t gg_step_begin(gg_session* session, gg_window* window, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!session) return IsNull("session");
    const Status checked = gradgate::CheckWindow(window);
    if (!checked.ok()) return checked;
    gradgate::ClosedWindow report;
    const Status reduced = session->session->BeforeStep(&report);
    return reduced.ok() && window ? gradgate::WriteStruct(gradgate::ToC(report), "window", window) : reduced;
  });
}

gg_status_t gg_flush(gg_session* session, uint32_t divisor, uint32_t* flushed, gg_window* window, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!session) return IsNull("session");
    if (!flushed) return IsNull("flushed");
    const Status checked = gradgate::CheckWindow(window);
    if (!checked.ok()) return checked;
    gradgate::ClosedWindow report;
    bool any = false;
    const Status reduced = session->session->Flush(divisor, &any, &report);
    if (!reduced.ok()) return reduced;
    *flushed = any ? 1 : 0;
    return any && window ? gradgate::WriteStruct(gradgate::ToC(report), "window", window) : reduced;
  });
}

gg_status_t gg_stats_get(gg_session* session, gg_stats* out, gg_error* error) {
  return Guarded(error, [&] {
    return session
               ? gradgate::WriteStruct(gradgate::ReadStats(session->session->page(), session->session->linked()), "out", out)
               : IsNull("session");
  });
}

gg_status_t gg_collective_stats_get(gg_session* session, gg_group group, gg_op op, gg_collective_stats* out, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!session) return IsNull("session");
    const Status checked = gradgate::CheckCell(group, op);
    if (!checked.ok()) return checked;
    return gradgate::WriteStruct(gradgate::ReadCell(session->session->page().cells[group][op]), "out", out);
  });
}

gg_status_t gg_policy_get(gg_session* session, gg_policy* out, gg_error* error) {
  return Guarded(error, [&]() -> Status {
    if (!session) return IsNull("session");
    const gradgate::PolicyStage& stage = session->session->stage();
    return gradgate::WriteStruct(gradgate::ToC(stage.in_force(), stage.adopted_window()), "out", out);
  });
}

uint32_t gg_session_bucket_count(const gg_session* session) { return session ? session->session->reducer().bucket_count() : 0; }

gg_status_t gg_session_close(gg_session* session, gg_error* error) {
  return Guarded(error, [&] { return session ? session->session->Close() : IsNull("session"); });
}

void gg_session_destroy(gg_session* session) {
  // In a forked child the threads that would have to be joined do not exist.
  if (session && session->session->forked()) return;
  delete session;
}

}  // extern "C"
