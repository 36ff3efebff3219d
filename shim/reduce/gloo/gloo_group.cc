#include "shim/reduce/gloo/gloo_group.h"

#include <gloo/allreduce.h>
#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <set>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "shim/core/thread_annotations.h"
#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

using Milliseconds = std::chrono::milliseconds;

// What is left, rounded down, at least 1: Gloo takes 0 for "no timeout".
Milliseconds LeftUntil(int64_t deadline_ns) {
  constexpr int64_t kMostMs = int64_t{24} * 3600 * 1000;
  return Milliseconds(std::clamp<int64_t>((deadline_ns - MonotonicNs()) / 1'000'000, 1, kMostMs));
}

// ---- Gloo's rendezvous store over ours.

class StoreAdapter final : public gloo::rendezvous::Store {
 public:
  StoreAdapter(gradgate::Store* store, std::string prefix, int64_t deadline_ns)
      : store_(store), prefix_(std::move(prefix)), deadline_ns_(deadline_ns) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    Check(store_->Set(prefix_ + key, std::string_view(data.data(), data.size()), Left()));
  }
  std::vector<char> get(const std::string& key) override {
    std::string value;
    const Status status = store_->Get(prefix_ + key, Left(), &value);
    timed_out_ |= status.code() == Code::kNotFound;
    Check(status);
    return {value.begin(), value.end()};
  }
  // A rank's addresses, which Gloo keeps under its number, did not appear.
  bool timed_out() const { return timed_out_; }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const Milliseconds& /*timeout*/) override { wait(keys); }

 private:
  int64_t Left() const { return std::max<int64_t>(deadline_ns_ - MonotonicNs(), 1); }
  static void Check(const Status& status) {
    if (!status.ok()) throw gloo::IoException(status.message());
  }

  gradgate::Store* const store_;
  const std::string prefix_;
  const int64_t deadline_ns_;
  bool timed_out_ = false;
};

// ---- Gloo applies a collective's timeout to each of its waits, and offers no way to interrupt one. So the device makes a
// context that stands before Gloo's own: its buffers wait until the request's deadline, and Interrupt closes all pairs as Gloo
// does after a timeout.

using gloo::transport::UnboundBuffer;

class DeadlineBuffer;

class GroupContext final : public gloo::transport::Context {
 public:
  explicit GroupContext(std::shared_ptr<gloo::transport::Context> inner)
      : Context(inner->rank, inner->size), inner_(std::move(inner)) {}

  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override { return inner_->getPair(peer); }
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    inner_->setTimeout(getTimeout());
    return inner_->createPair(peer);
  }
  std::unique_ptr<UnboundBuffer> createUnboundBuffer(void* data, size_t nbytes) override;

  // A wait that times out makes Gloo fail every pair, and what waits for one; but not who waits for a message of which a part
  // has been sent or received: those are woken here. Throws what the wait throws.
  void Interrupt();

  void Add(DeadlineBuffer* buffer) GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    buffers_.insert(buffer);
  }
  void Remove(DeadlineBuffer* buffer) GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    buffers_.erase(buffer);
  }

  // Without the deadline.
  std::unique_ptr<UnboundBuffer> CreatePlainBuffer(void* data, size_t nbytes) {
    return inner_->createUnboundBuffer(data, nbytes);
  }

  void set_deadline_ns(int64_t deadline_ns) { deadline_ns_ = deadline_ns; }
  Milliseconds Left() const { return LeftUntil(deadline_ns_); }

 private:
  const std::shared_ptr<gloo::transport::Context> inner_;
  std::atomic<int64_t> deadline_ns_{0};
  Mutex mutex_;
  std::set<DeadlineBuffer*> buffers_ GG_GUARDED_BY(mutex_);  // of the collective that is running
};

class DeadlineBuffer final : public UnboundBuffer {
 public:
  DeadlineBuffer(GroupContext* context, std::unique_ptr<UnboundBuffer> inner)
      : UnboundBuffer(inner->ptr, inner->size), context_(context), inner_(std::move(inner)) {
    context_->Add(this);
  }
  ~DeadlineBuffer() override { context_->Remove(this); }

  // Collectives do not look at what a wait returns, so one that was woken throws.
  bool waitRecv(int* rank, Milliseconds /*timeout*/) override { return Ended(inner_->waitRecv(rank, context_->Left())); }
  bool waitSend(int* rank, Milliseconds /*timeout*/) override { return Ended(inner_->waitSend(rank, context_->Left())); }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int peer, uint64_t slot, size_t offset, size_t nbytes) override { inner_->send(peer, slot, offset, nbytes); }
  void recv(int peer, uint64_t slot, size_t offset, size_t nbytes) override { inner_->recv(peer, slot, offset, nbytes); }
  void recv(std::vector<int> peers, uint64_t slot, size_t offset, size_t nbytes) override {
    inner_->recv(std::move(peers), slot, offset, nbytes);
  }

 private:
  static bool Ended(bool done) {
    if (!done) throw gloo::IoException("interrupted: the group has failed");
    return true;
  }

  GroupContext* const context_;  // outlives the collective that this buffer is part of
  const std::unique_ptr<UnboundBuffer> inner_;
};

void GroupContext::Interrupt() {
  std::exception_ptr ended;
  try {
    char byte = 0;
    inner_->createUnboundBuffer(&byte, 1)->waitRecv(Milliseconds(1));
  } catch (...) {
    ended = std::current_exception();
  }
  {
    const MutexLock lock(mutex_);
    for (DeadlineBuffer* buffer : buffers_) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }
  if (ended) std::rethrow_exception(ended);
}

std::unique_ptr<UnboundBuffer> GroupContext::createUnboundBuffer(void* data, size_t nbytes) {
  return std::make_unique<DeadlineBuffer>(this, inner_->createUnboundBuffer(data, nbytes));
}

class GroupDevice final : public gloo::transport::tcp::Device {
 public:
  using Device::Device;

  std::shared_ptr<gloo::transport::Context> createContext(int rank, int size) override {
    auto context = std::make_shared<GroupContext>(Device::createContext(rank, size));
    context_ = context;
    return context;
  }
  std::shared_ptr<GroupContext> context() const { return context_.lock(); }

 private:
  std::weak_ptr<GroupContext> context_;
};

// ---- The interface.

std::string InterfaceNames() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  std::set<std::string> names;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr != nullptr && (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6))
      names.insert(i->ifa_name);
  }
  ::freeifaddrs(all);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool CanBind(const addrinfo& address) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool bound = ::bind(fd, address.ai_addr, address.ai_addrlen) == 0;
  ::close(fd);
  return bound;
}

// The host name's first address that belongs to this machine, as digits; else empty. (Gloo's own look-up crashes on an unknown
// name.)
std::string HostAddress() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "";
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name, nullptr, &hints, &found) != 0) return "";
  std::string result;
  for (const addrinfo* a = found; a != nullptr && result.empty(); a = a->ai_next) {
    char digits[NI_MAXHOST] = {};
    if (CanBind(*a) && ::getnameinfo(a->ai_addr, a->ai_addrlen, digits, sizeof(digits), nullptr, 0, NI_NUMERICHOST) == 0)
      result = digits;
  }
  ::freeaddrinfo(found);
  return result;
}

Status CreateDevice(const std::string& interface_name, const std::string& address, std::shared_ptr<GroupDevice>* device) {
  // Asked for one that is not there, Gloo leaks the list of those that are.
  const std::string names = ", " + InterfaceNames() + ",";
  if (!interface_name.empty() && names.find(", " + interface_name + ",") == std::string::npos) {
    return InvalidArgument("network interface '" + interface_name + "' cannot be used; there are: " + InterfaceNames());
  }
  try {
    gloo::transport::tcp::attr wanted;
    wanted.iface = interface_name;
    wanted.hostname = address;
    *device = std::make_shared<GroupDevice>(gloo::transport::tcp::CreateDeviceAttr(wanted));
    return OkStatus();
  } catch (const std::exception& e) {
    return InvalidArgument("network interface '" + (interface_name.empty() ? address : interface_name) + "' cannot be used (" +
                           e.what() + "); there are: " + InterfaceNames());
  }
}

Status ChooseDevice(std::string name, std::shared_ptr<GroupDevice>* device) {
  const char* variable = std::getenv("GLOO_SOCKET_IFNAME");
  if (name.empty() && variable != nullptr) name = std::string(variable).substr(0, std::string(variable).find(','));
  if (!name.empty()) return CreateDevice(name, "", device);
  if (const std::string address = HostAddress(); !address.empty() && CreateDevice("", address, device).ok()) return OkStatus();
  return CreateDevice("lo", "", device);
}

// ---- Reduction.

template <typename T>
void Sum(void* out, const void* a, const void* b, size_t n) {
  using Word =
      typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;  // integers wrap
  Word* o = static_cast<Word*>(out);
  const Word* x = static_cast<const Word*>(a);
  const Word* y = static_cast<const Word*>(b);
  for (size_t i = 0; i < n; ++i) o[i] = x[i] + y[i];
}

template <typename T>
void Max(void* out, const void* a, const void* b, size_t n) {
  T* o = static_cast<T*>(out);
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  for (size_t i = 0; i < n; ++i) o[i] = std::max(x[i], y[i]);
}

constexpr uint64_t kFewBytes = 1024;

template <typename T>
void RunAllReduce(const std::shared_ptr<gloo::Context>& context, const AllReduceRequest& request, uint64_t number,
                  Milliseconds timeout) {
  gloo::AllreduceOptions options(context);
  options.setOutput(static_cast<T*>(request.data), request.element_count);
  options.setReduceFunction(request.op == ReduceOp::kSum ? Sum<T> : Max<T>);
  options.setTag(static_cast<uint32_t>(number));
  options.setTimeout(timeout);
  // A ring takes 2 (P - 1) hops; of a few bytes nothing counts but the hops, of which this takes 2 log P.
  if (request.element_count * sizeof(T) <= kFewBytes) options.setAlgorithm(gloo::AllreduceOptions::Algorithm::BCUBE);
  gloo::allreduce(options);
}

// Collectives use slots whose first byte is small.
constexpr uint64_t kFarewellSlot = uint64_t{0xFF} << 56;
constexpr Milliseconds kForever = std::chrono::hours(24 * 365 * 50);
constexpr Milliseconds kFarewellTimeout = std::chrono::seconds(1);

// Waits for each peer's farewell. A connection that ends without one is trouble: `on_trouble` is called, once, on the thread of
// this object. Gloo alone would tell only the collective that is just using that connection.
class PeerWatch {
 public:
  PeerWatch(GroupContext* context, std::function<void(const std::string&)> on_trouble)
      : farewells_(static_cast<size_t>(context->size)),
        buffer_(context->CreatePlainBuffer(farewells_.data(), farewells_.size())),
        on_trouble_(std::move(on_trouble)) {
    for (int peer = 0; peer < context->size; ++peer) {
      if (peer != context->rank) buffer_->recv(peer, kFarewellSlot, static_cast<size_t>(peer), 1);
    }
    thread_ = std::thread([this] { Run(); });
  }
  ~PeerWatch() {
    buffer_->abortWaitRecv();
    thread_.join();
  }
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

 private:
  void Run() {
    try {
      for (size_t left = farewells_.size() - 1; left > 0; --left) {
        if (!buffer_->waitRecv(nullptr, kForever)) return;
      }
    } catch (const std::exception& e) {
      on_trouble_(e.what());
    }
  }

  std::vector<char> farewells_;
  const std::unique_ptr<UnboundBuffer> buffer_;
  const std::function<void(const std::string&)> on_trouble_;
  std::thread thread_;
};

class Group final : public GlooGroup {
 public:
  explicit Group(std::shared_ptr<GroupDevice> device) : device_(std::move(device)) {}

  Status Connect(uint32_t rank, uint32_t world_size, Store* store, const std::string& key_prefix,
                 int64_t deadline_ns) override {
    StoreAdapter adapter(store, key_prefix, deadline_ns);
    try {
      auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank), static_cast<int>(world_size));
      // Gloo waits five times its timeout for a connection.
      context->setTimeout(std::max(LeftUntil(deadline_ns) / 5, Milliseconds(1)));
      std::shared_ptr<gloo::transport::Device> device = device_;
      context->connectFullMesh(adapter, device);
      context_ = std::move(context);
      pairs_ = device_->context();
      watch_ = std::make_unique<PeerWatch>(pairs_.get(), [this](const std::string& what) {
        {
          const MutexLock lock(mutex_);
          trouble_ = what;
        }
        Interrupt();
      });
      return store->Set(key_prefix + "up/" + std::to_string(rank), "yes", std::max<int64_t>(deadline_ns - MonotonicNs(), 1));
    } catch (const std::exception& e) {
      const std::string silent = Silent(rank, world_size, store, key_prefix);
      if (adapter.timed_out() && !silent.empty()) return DeadlineExceeded(silent);
      return Unavailable((silent.empty() ? "cannot connect to all ranks" : silent) + " [from " + device_->str() + ": " +
                         e.what() +
                         "]; if ranks are on several machines, set GLOO_SOCKET_IFNAME to the interface between them");
    }
  }

  // Every rank tells how its connecting ended. Names those that do not, or gave no address to begin with.
  static std::string Silent(uint32_t rank, uint32_t world_size, Store* store, const std::string& key_prefix) {
    constexpr int64_t kLookNs = 1'000'000;
    const int64_t end_ns = MonotonicNs() + 1'000'000'000;
    (void)store->Set(key_prefix + "up/" + std::to_string(rank), "no", kLookNs * 200);
    std::string silent;
    for (uint32_t r = 0; r < world_size; ++r) {
      std::string ignored;
      const std::string name = std::to_string(r);
      if (r == rank) continue;
      if (store->Get(key_prefix + name, kLookNs, &ignored).ok() &&
          store->Get(key_prefix + "up/" + name, std::max(end_ns - MonotonicNs(), kLookNs), &ignored).ok()) {
        continue;
      }
      silent += (silent.empty() ? "" : ", ") + name;
    }
    return silent.empty() ? "" : "ranks [" + silent + "] came, and then did not connect; they are frozen, slow or gone";
  }

  Status AllReduce(const AllReduceRequest& request, uint64_t number) override {
    if (request.element_count == 0) return OkStatus();
    if (MonotonicNs() >= request.deadline_ns)
      return DeadlineExceeded("request " + std::to_string(number) + " began after its deadline");
    try {
      pairs_->set_deadline_ns(request.deadline_ns);
      Dispatch(request, number, LeftUntil(request.deadline_ns));
      return OkStatus();
    } catch (const std::exception& e) {
      return Explain(request, "request " + std::to_string(number) + ": ", e.what());
    }
  }

  void Leave() override {
    char farewell = 0;
    const auto buffer = pairs_->CreatePlainBuffer(&farewell, 1);
    for (int peer = 0; peer < pairs_->size; ++peer) {
      if (peer == pairs_->rank) continue;
      try {
        buffer->send(peer, kFarewellSlot, 0, 1);
        buffer->waitSend(nullptr, kFarewellTimeout);
      } catch (const std::exception&) {  // it left before
      }
    }
  }

  void Interrupt() override {
    try {
      pairs_->Interrupt();
    } catch (const std::exception&) {  // the timeout that does it
    }
  }

 private:
  void Dispatch(const AllReduceRequest& request, uint64_t number, Milliseconds timeout) {
    switch (request.dtype) {
      case DType::kFloat32:
        return RunAllReduce<float>(context_, request, number, timeout);
      case DType::kFloat64:
        return RunAllReduce<double>(context_, request, number, timeout);
      case DType::kInt64:
        return RunAllReduce<int64_t>(context_, request, number, timeout);
    }
  }

  Status Explain(const AllReduceRequest& request, const std::string& prefix, const char* what) GG_EXCLUDES(mutex_) {
    constexpr int64_t kRoundingNs = 2'000'000;
    if (MonotonicNs() + kRoundingNs >= request.deadline_ns) return DeadlineExceeded(prefix + what);
    const MutexLock lock(mutex_);
    return Unavailable(prefix + (trouble_.empty() ? what : trouble_));
  }

  Mutex mutex_;
  std::string trouble_ GG_GUARDED_BY(mutex_);  // what ended a peer's connection
  // In the order of construction: the device's thread outlives the connections, and they the watch.
  const std::shared_ptr<GroupDevice> device_;
  std::shared_ptr<GroupContext> pairs_;
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<PeerWatch> watch_;
};

}  // namespace

Status GlooGroup::Create(const std::string& interface_name, std::unique_ptr<GlooGroup>* group) {
  std::shared_ptr<GroupDevice> device;
  if (Status status = ChooseDevice(interface_name, &device); !status.ok()) return status;
  *group = std::make_unique<Group>(std::move(device));
  return OkStatus();
}

}  // namespace gradgate
