// SPDX-License-Identifier: Apache-2.0
//
// The emulated machine: one mutex, and under it devices, streams, events, memory, communicators, clocks and reports.
// What moves data runs without that mutex, one at a time.
//
// A stream is a thread that takes its operations in order. An operation starts when all that it comes after has ended
// (`Op::after`), and after it has been held back for a seeded while, measured in what others have done since. When it
// starts its clock is complete: the stream's, joined with the submitting host thread's as it was at submission, and
// with those of what it comes after. Its accesses are then entered into the histories of the memory, which is where
// races are found: so whether a race is found does not depend on how things happened to run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <chrono>

#include "clock.hpp"
#include "emulator.hpp"
#include "memory.hpp"
#include "races.hpp"

namespace kolo::emulated {

using Lock = std::unique_lock<std::mutex>;

/// The end of an operation: whether it has come, and with which clock.
struct Completion {
  bool done = false;
  VectorClock clock;
  std::chrono::steady_clock::time_point at;
  std::vector<std::condition_variable*> waiters;
};
using CompletionPtr = std::shared_ptr<Completion>;

struct Touch {
  Range range;
  bool write = false;
};

/// The same before it is known whose memory it is.
struct RawTouch {
  const void* data = nullptr;
  std::size_t bytes = 0;
  bool write = false;
};

class Stream;

struct Op {
  OperationPtr operation;
  VectorClock submitted;
  std::vector<CompletionPtr> after;
  std::vector<Touch> touches;
  /// What else it touches, known only when it starts (a kernel's table in device memory). Runs as a body does.
  std::function<std::vector<RawTouch>()> find_touches;
  /// Moves the data; without the machine's mutex.
  std::function<void()> body;
  bool on_host = false;  // the body is a program's function
  /// Instead of a body: occupies the stream, with the machine's mutex, until it returns (a collective).
  std::function<void(Lock&, Stream&)> occupy;
  CompletionPtr completion = std::make_shared<Completion>();
  unsigned hold = 0;
};

/// Under the machine's mutex, but for `run`.
class Stream {
 public:
  enum class Kind : std::uint8_t { legacy, per_thread, blocking, non_blocking };

  Stream(int device, Kind kind, int priority, unsigned flags, unsigned number);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Whether it waits for the legacy default stream, and that for it.
  bool is_blocking() const noexcept { return kind == Kind::per_thread || kind == Kind::blocking; }
  void enqueue(Op op);
  /// The thread ends when all has run; or without running the rest.
  void close(bool at_once);
  bool idle() const noexcept { return queue_.empty(); }
  std::size_t queued() const noexcept { return queue_.size(); }
  std::string describe() const;
  std::string name() const;
  ActorId actor() const noexcept { return actor_; }
  VectorClock& clock() noexcept { return clock_; }

  const int device;
  const Kind kind;
  const int priority;
  const unsigned flags;
  const unsigned number;
  CompletionPtr last;  // of what was enqueued last
  bool capturing = false;
  bool capture_invalidated = false;
  int capture_mode = 0;          // as given to cudaStreamBeginCapture
  unsigned captured_by = 0;      // the number of the host thread that began
  bool finished = false;         // the thread has left its loop
  bool occupied = false;         // by a collective that has started
  bool waits_for_peers = false;  // whose collective has not all it needs
  const char* state = "idle";

 private:
  void run();
  void execute(Lock& lock, Op& op);
  void hold(Lock& lock, const Op& op);
  void begin(const Op& op, const std::vector<Touch>& touches);

  ActorId actor_;
  VectorClock clock_;
  std::deque<Op> queue_;  // the front is running or about to
  bool closing_ = false;
  bool cut_ = false;
  std::uint64_t enqueued_ = 0;
  std::condition_variable wake_;
  std::thread thread_;  // last: starts when all else is there
};
using StreamPtr = std::shared_ptr<Stream>;

struct Event {
  int device = 0;
  unsigned flags = 0;
  unsigned number = 0;
  CompletionPtr recorded;
};

struct HostThread {
  std::uint64_t generation = 0;
  unsigned number = 0;
  ActorId actor = 0;
  VectorClock clock;
  int device = 0;           // the current one
  void* context = nullptr;  // likewise; null: the first call that needs one goes into that device's primary context
  struct Below {
    int device = 0;
    void* context = nullptr;
  };
  std::vector<Below> below;  // what was current when a context was pushed
  int last_error = 0;
  int capture_mode = 0;                      // of cudaThreadExchangeStreamCaptureMode: global, as it begins
  bool knows_unloaded = false;               // CUDA has told it, or it has unloaded CUDA itself
  std::map<int, StreamPtr> default_streams;  // per-thread default streams, by device
  std::string name() const { return "host thread " + std::to_string(number); }

  // A context is a number: 2 * its device + 1 for a primary one, and so much more for one that is not.
  static constexpr std::uintptr_t kOfItsOwn = 0x10000;
  static void* primary_context(int device) {
    return reinterpret_cast<void*>(2 * static_cast<std::uintptr_t>(device) + 1);
  }
  static int device_of(void* of) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(of) % kOfItsOwn / 2); }
};
using HostThreadPtr = std::shared_ptr<HostThread>;

/// What a thread is in the middle of, beside any call.
struct ThreadContext {
  HostThreadPtr host;
  Stream* stream = nullptr;  // set on a stream's thread
  const Op* op = nullptr;    // likewise, while it runs
  bool in_host_function = false;
  const std::vector<Touch>* touches = nullptr;  // of the kernel that runs on this thread
};
ThreadContext& this_thread();

struct Communicator;
class Cliques;

class Machine {
 public:
  static Machine& instance();
  ~Machine();

  void reset(const Config& config);

  // ---- with the mutex held
  HostThread& host();
  StreamPtr find_stream(void* handle, int device);
  StreamPtr make_stream(int device, Stream::Kind kind, int priority, unsigned flags);
  std::vector<StreamPtr> streams_of(int device);
  /// Gives an op to a stream: fills in its clock, delay and what the default stream's rules add.
  void submit(const StreamPtr& stream, Op op);
  void await(Lock& lock, CompletionPtr completion);
  void complete(const CompletionPtr& completion, const VectorClock& clock);
  void enter(const Access& access, const Touch& touch, const VectorClock& clock);
  void report(Report::Kind kind, const std::string& text);
  void touched_by_host(const void* data, std::size_t bytes, bool write, const char* what);
  /// The live range behind a pointer a program gave, or null for the host's own memory. A range that is not all in
  /// live memory is reported, and `wrong` set.
  Range resolve(const void* data, std::size_t bytes, const std::string& what, bool& wrong);
  /// Adds the touch to an op; nothing for the host's own memory. False when it was reported.
  bool add_touch(std::vector<Touch>& touches, const RawTouch& touch, const std::string& what);
  ActorId new_actor() { return next_actor_++; }
  OperationPtr operation(const std::string& what, const Stream& stream, const std::string& site) const;
  std::uint64_t draw(std::uint64_t a, std::uint64_t b) const;
  bool allocation_hazard(int device);
  /// Reports that this call is one.
  void report_hazard(const std::string& call, int device);

  /// Runs what moves data: one at a time, without the machine's mutex.
  void move_data(Lock& lock, const std::function<void()>& body);

  std::mutex mutex;
  std::condition_variable progressed;  // when a stream falls idle
  std::uint64_t generation = 0;
  Config config;
  std::uint64_t doings = 0;  // calls and ends of operations: what delays are measured in
  std::shared_ptr<Memory> memory;
  std::map<void*, StreamPtr> streams;
  std::map<int, StreamPtr> legacy_streams;
  std::map<void*, std::shared_ptr<Event>> events;
  std::vector<HostThreadPtr> threads;
  std::map<const void*, VectorClock> handed_over;
  std::map<int, VectorClock> gone;      // what streams have done that are no more, by device
  std::uintptr_t next_handle = 0x1001;  // odd: no pointer to anything
  unsigned next_stream = 1;
  unsigned next_event = 1;

  // ---- calls
  std::map<std::string, std::uint64_t> call_counts;
  std::uint64_t call_number = 0;
  std::vector<CallRecord> collectives;
  bool traces = false;
  std::vector<TracedCall> traced;
  struct Injection {
    Failure failure;
    std::uint64_t seen = 0;
  };
  std::vector<Injection> injections;
  bool unloaded = false;
  std::set<int> contexts;  // the devices on which the process has a primary one
  std::set<std::string> held;
  std::condition_variable released;
  std::vector<SyncSite> sites;
  std::set<std::string> left_out;

  // ---- NCCL
  std::shared_ptr<Cliques> cliques;
  std::map<int, unsigned> filled;  // how many run on a device, with Config::collectives_at_a_time

 private:
  Machine();
  void tear_down(Lock& lock);

  std::mutex data_mutex_;
  ActorId next_actor_ = 0;
  std::vector<Report> reports_;
  std::set<std::string> reported_;
  std::list<StreamPtr> all_streams_;  // closed ones too, until their threads have ended

  friend std::vector<Report> take_reports();
  friend void drain();
  friend std::string describe();
  friend void unload();
};

/// "src/data/cuda/queue.cpp:120".
std::string site_text(const char* file, int line);

}  // namespace kolo::emulated
