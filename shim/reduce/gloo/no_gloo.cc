#include "shim/reduce/gloo/open_gloo.h"

namespace gradgate {

Status OpenGlooTransport(const GlooOptions&, std::unique_ptr<Transport>*) {
  return Unimplemented("this libgradgate was built without Gloo, as the Python package's is; use one that was built with it");
}

}  // namespace gradgate
