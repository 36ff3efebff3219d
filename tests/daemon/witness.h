// A well-behaved trainer: the shim's own recorder and link, on a thread, closing windows at a pace that a daemon can follow.
// Tests run one beside hostile clients; afterwards the daemon must have every count of it.
//
// Thread class: one thread per object.

#ifndef GRADGATE_TESTS_DAEMON_WITNESS_H_
#define GRADGATE_TESTS_DAEMON_WITNESS_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace gradgate {
class Link;  // not included: the shim and the daemon have classes of the same names
class Recorder;
}  // namespace gradgate

namespace gradgate::testing {

inline constexpr char kWitnessJob[] = "witness";

// What it did; the daemon must say the same.
struct Tally {
  uint64_t windows = 0;
  uint64_t micro_steps = 0;
  uint64_t events = 0;
  uint64_t collectives = 0;
  uint64_t bytes = 0;
};

class Witness {
 public:
  // Looks for shim.sock in `directory`, tries at once, and begins to train.
  explicit Witness(const std::string& directory);
  ~Witness();  // as a kill would
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  bool AwaitWelcome();
  // Ends training with a goodbye. Connected all the time, without a second Hello: was_disturbed() is false.
  Tally Finish();
  bool was_disturbed() const { return disturbed_; }

 private:
  void Train();
  void TrainWindow(Tally& tally);
  void Quit();

  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<Link> link_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stop_ = false;  // guarded by mutex_
  bool disturbed_ = false;
  Tally tally_;
  std::thread thread_;
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_WITNESS_H_
