// SPDX-License-Identifier: Apache-2.0
//
// What tests say to the emulated device, and ask it. The device itself is reached as a real one is, through the CUDA
// runtime's and NCCL's own functions: this library defines those that Kolo calls, from NVIDIA's headers. README.md says
// what is emulated and what is not.
//
// Threads: everything here may be called from any host thread, but `reset` only while no other thread is inside a call
// of CUDA's or NCCL's. One device machine a process.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace kolo::emulated {

struct Config {
  int devices = 1;  ///< 0: cudaErrorNoDevice
  /// The machine's numbers of these devices, where CUDA_VISIBLE_DEVICES shows some of them, or in another order; empty:
  /// 0, 1, ... UUIDs and busses go by the number.
  std::vector<int> numbers = {};
  /// Communicators are non-blocking whatever the program asked for, as NCCL_COMM_BLOCKING=0 has it.
  bool never_blocking = false;
  /// NCCL has none of the calls that came after 2.27.
  bool old_nccl = false;
  /// Two devices of neighbouring numbers are instances of one, with UUIDs of their own on one bus.
  bool instances = false;
  bool driver = true;      ///< false: cudaErrorInsufficientDriver, as on a machine without one
  std::uint64_t seed = 1;  ///< of all delays
  unsigned lateness = 32;  ///< the longest time that one operation is held back, in doings of others; 0: none
  std::size_t device_bytes = std::size_t{1} << 30;  ///< what each device has
  bool shared_devices = true;  ///< several ranks of a communicator on one device; false: ncclInvalidUsage, as NCCL
  /// The ranks of every communicator are processes, each with a machine of its own, which find each other in shared
  /// memory. No sends and receives, no splits.
  bool ranks_are_processes = false;
  /// A host thread's first call comes after all that host threads had waited for by then, as if one of them had just
  /// created it. False: only what `acquire` says.
  bool threads_inherit = true;
  /// Memory that is allocated or freed while a collective occupies a stream of the device can deadlock, and so can a
  /// communicator that is made or destroyed then: a report.
  bool report_allocation_hazards = false;
  /// For how many collectives a device has room: no other one starts there before one has ended, be it of another
  /// communicator and on another stream. 0: for all.
  unsigned collectives_at_a_time = 0;
  /// How many operations a stream takes that have not ended; the call that gives it another one blocks. 0: all.
  std::size_t most_queued = 0;
  /// How much faster than the host's the devices' clock goes, by which events are timed.
  double clock_rate = 1.0;
};

/// A new machine: no streams, memory, communicators, reports, counts, injections; all handles of before are invalid.
/// What is still running is cut off.
void reset(const Config& config = {});

// ---------------------------------------------------------------- what went wrong

struct Report {
  enum class Kind : std::uint8_t {
    race,      ///< two conflicting accesses that nothing orders
    memory,    ///< out of bounds, after free, never allocated, or undeclared by a kernel
    mismatch,  ///< ranks disagree about a collective
    misuse,    ///< a call that CUDA or NCCL refuses, or forbids without noticing
    hazard,    ///< works here, may deadlock on a device
  };
  Kind kind;
  std::string text;
};
std::string to_string(Report::Kind kind);

/// What was reported since the last call. Let streams run dry first (`drain`): accesses are compared when they happen.
std::vector<Report> take_reports();
/// Reports that nobody takes are printed when the process ends, and end it with this status.
inline constexpr int kUnreadReports = 86;

/// Waits until all streams are idle; collectives that wait for a peer that has not come count as idle.
void drain();
/// Streams, events, memory and communicators that are still there, one line each.
std::vector<std::string> live_objects();
/// What each stream is doing or waits for: to be printed when a test hangs.
std::string describe();

// ---------------------------------------------------------------- what the emulator cannot see by itself

/// The calling thread is about to read or write memory that a device can reach too. Also in a host function, where it
/// counts as the stream's access.
void host_read(const void* data, std::size_t bytes, const char* what = "host read");
void host_write(const void* data, std::size_t bytes, const char* what = "host write");

/// Hand-overs between host threads: what has acquired comes after what the releaser had done and waited for.
void release(const void* key);
void acquire(const void* key);
/// The calling thread comes after all that any host thread has waited for by now. For a thread that was told of an
/// operation's end by means that the emulator does not see, as by a handle.
void acquire_all();

/// What is given to the stream from now on is meant to come after the event, as it was recorded last: a report when
/// nothing orders the two.
void expect_behind(cudaStream_t stream, cudaEvent_t event);

// ---------------------------------------------------------------- contexts

/// The devices on which this process has a primary context, ascending: some 500 MiB of each. The first call that needs
/// one makes it, on the thread's current device, and cudaSetDevice does, as with CUDA 12.
std::vector<int> contexts();
/// The calling thread's; null: it has none.
void* current_context();
/// The calling thread goes into a context of this device that is not the primary one.
void enter_context_of_its_own(int device);

// ---------------------------------------------------------------- faults

struct Failure {
  enum class Effect : std::uint8_t {
    fail,  ///< the call returns `code` and does nothing
    /// A call on a communicator: the rank takes part in nothing from now on (the call returns `code`, or success for
    /// 0), and the others' communicators get ncclRemoteError. Their streams stay occupied until they abort.
    lose_peer,
    vanish,  ///< the same, and nobody is told
  };
  std::string api;         ///< "cudaMalloc"
  std::uint64_t nth = 1;   ///< counted from now, among the calls that match
  int code = 1;            ///< cudaError_t or ncclResult_t
  bool and_later = false;  ///< all matching calls from the nth on
  int device = -1;         ///< only where this device is current (CUDA) or the communicator's (NCCL)
  int rank = -1;           ///< only this rank's (NCCL calls on a communicator)
  Effect effect = Effect::fail;
  bool after_others = false;  ///< lose_peer: not before all other ranks have made the collective's call
};
void inject(const Failure& failure);

/// Calls of this function (of CUDA's, ncclMemAlloc, ncclCommAbort, or a collective) do not return until
/// `release_calls`.
void hold_calls(const std::string& api);
void release_calls();

/// What the end of a process does before the destructors of its globals: from now on, until the next reset, every call
/// of CUDA returns cudaErrorCudartUnloading, and a call of NCCL by a thread that has been told so, or that has called
/// this, is reported. What streams are doing is cut off.
void unload();

// ---------------------------------------------------------------- what was called

/// How often, since the last reset.
std::uint64_t calls(const std::string& api);

struct CallRecord {
  std::string api;
  std::uint64_t number;  ///< among all calls since the reset
  std::thread::id thread;
  std::size_t count = 0;  ///< of elements, for collectives
};
/// The collectives and point-to-point calls that were made, in order.
std::vector<CallRecord> collective_calls();
/// One call, of any kind, since `trace`.
struct TracedCall {
  std::string api;
  std::thread::id thread;
  int device = 0;       ///< the thread's current one, or the stream's
  unsigned stream = 0;  ///< to which it gave something; 0: to none
};
/// Notes every call from now on; what was noted so far is forgotten.
void trace();
/// The calls since `trace`, in order; notes no more.
std::vector<TracedCall> take_trace();
/// The number of the last call so far, of any kind.
std::uint64_t calls_so_far();

// ---------------------------------------------------------------- mutation

/// A place in the code under test that synchronises: orders work, waits for it, or asks whether it is done.
struct SyncSite {
  std::string call;   ///< "cudaEventRecord"
  std::string place;  ///< "src/data/cuda/queue.cpp:120"
  std::uint64_t calls = 0;
};
/// Those that were passed since the last reset, in the order in which they were first passed.
std::vector<SyncSite> sync_sites();
/// From now on, until the next reset, the calls of this place are left out: queries say yes, the rest do nothing.
void leave_out(const std::string& place);

}  // namespace kolo::emulated
