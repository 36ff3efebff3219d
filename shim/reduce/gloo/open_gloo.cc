#include "shim/reduce/gloo/open_gloo.h"

#include "shim/reduce/gloo/gloo_transport.h"

namespace gradgate {

Status OpenGlooTransport(const GlooOptions& options, std::unique_ptr<Transport>* transport) {
  return GlooTransport::Open(options, transport);
}

}  // namespace gradgate
