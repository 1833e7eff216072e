// SPDX-License-Identifier: Apache-2.0

/// @file
/// Information: what this build contains, how this job runs, and what the engine has done.
#ifndef KOLO_INFO_HPP
#define KOLO_INFO_HPP

#include <cstdint>
#include <string>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/export.hpp>

namespace kolo {

/// Major, minor and patch: "0.3.0".
[[nodiscard]] KOLO_API const char* version() noexcept;

/// The compiler of this build, and the libraries that it was built with or that this process has opened; an empty
/// string for a part that was left out.
struct BuildInfo {
  std::string version;
  std::string compiler;  ///< "GCC 12.2.0"
  std::string mpi;       ///< "Open MPI v4.1.4 (/usr/lib/x86_64-linux-gnu/libmpi.so.40)"; empty: none has been opened
  std::string ucx;       ///< "UCX 1.13": the version of the headers; the library is loaded when it is needed
  std::string cuda;      ///< "CUDA 13.0, NCCL 2.28.9 (/usr/lib/...)", or that NCCL has not been opened
  std::string simd;      ///< the instruction set that the CPU kernels use here: "AVX3"
};
[[nodiscard]] KOLO_API BuildInfo built_with();

/// One setting, as this context uses it.
struct Setting {
  std::string name;
  std::string value;
  std::string default_value;
  std::string source;  ///< "default", "environment", "option", "rank 0", or the alias that was read
  std::string range;
  std::string help;
};
[[nodiscard]] KOLO_API std::vector<Setting> settings(const Group& group = current_context());

/// How `init` would start this process, given these options and the environment: a line for each way, in the order in
/// which they are tried, and which of them is taken.
[[nodiscard]] KOLO_API std::vector<std::string> explain_start(const Options& options = {});

/// Several lines for a person: version, place, nodes, transports, backends and routes chosen.
[[nodiscard]] KOLO_API std::string describe(const Group& group = current_context());

/// How often a quantity had which size.
struct Histogram {
  std::vector<std::uint64_t> bounds;  ///< the largest value of each bucket but the last, ascending
  std::vector<std::uint64_t> counts;  ///< values in each bucket: one more than bounds
  std::uint64_t count = 0;            ///< of all values
  std::uint64_t sum = 0;              ///< of all values
};

/// What this rank gave to collectives of one kind.
struct CollectiveCount {
  std::uint64_t calls = 0;  ///< that are over (a grouped call counts once)
  std::uint64_t bytes = 0;  ///< of this rank's inputs
  std::uint64_t ns = 0;     ///< for which its batches ran, in nanoseconds; calls that avoid the log are not timed
};

/// Counters of this rank since the context was made. They only rise.
struct Metrics {
  std::uint64_t steps = 0;        ///< that have ended in the world (end_step)
  std::uint64_t submissions = 0;  ///< requests (a grouped call counts once)
  std::uint64_t batches = 0;      ///< requests that ran together as one collective
  /// Of `batches`: those for which other ranks waited for this one, because it was the last to submit. Where no rank is
  /// slow it is about as much on every rank; on a slow one it is nearly all.
  std::uint64_t awaited_batches = 0;
  std::uint64_t tensors = 0;     ///< reduced, gathered or broadcast
  std::uint64_t bytes = 0;       ///< their bytes (this rank's contribution)
  std::uint64_t failures = 0;    ///< handles that failed
  std::uint64_t mismatches = 0;  ///< requests about which ranks disagreed
  std::uint64_t stalls = 0;      ///< stall warnings
  // By collective, those that Kolo makes for itself included. A grouped call counts as its kind.
  CollectiveCount allreduce;
  CollectiveCount reduce;
  CollectiveCount broadcast;
  CollectiveCount allgather;  ///< with equal rows, too
  CollectiveCount gather;
  CollectiveCount scatter;
  CollectiveCount alltoall;
  CollectiveCount reduce_scatter;
  CollectiveCount barrier;
  // Of `bytes`: by the route that they took (docs/tuning.md).
  std::uint64_t bytes_small = 0;          ///< short calls that avoided the log
  std::uint64_t bytes_flat = 0;           ///< each rank that wants the result reduced all inputs by itself
  std::uint64_t bytes_slots = 0;          ///< through the slots of a node, or in an arena
  std::uint64_t bytes_between_nodes = 0;  ///< of groups that have several nodes
  std::uint64_t bytes_alone = 0;          ///< of groups of one rank
  std::uint64_t bytes_on_device = 0;
  std::uint64_t bytes_in_place = 0;  ///< of `bytes`: reduced in a GradientArena, without a copy
  // Messages between two ranks, also from a rank to itself, without those that were cancelled or expired. A short
  // message counts as sent before it is received.
  std::uint64_t messages_sent = 0;
  std::uint64_t message_bytes_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t message_bytes_received = 0;
  Histogram negotiation_ns;  ///< from when the engine took a request until all ranks had submitted it; not of shortcuts
  Histogram execution_ns;    ///< from the begin of a batch until it was done
  /// How long threads of the program slept inside Kolo. A wait that ends while its thread still looks is not counted.
  Histogram wait_ns;
  Histogram batch_requests;  ///< requests of a batch
  Histogram batch_bytes;     ///< bytes of a batch: this rank's contribution
};
/// Any thread. Not inside a callback of on_done, where it is an error (invalid_argument).
[[nodiscard]] KOLO_API Metrics metrics(const Group& group = current_context());

/// The same as an object of JSON, with the members' names; of a collective an object of "calls", "bytes" and
/// "ns", of a histogram one of "bounds", "counts", "count" and "sum". And what the engine counts for itself:
/// docs/tuning.md and docs/gpu.md name what tells something to its user.
[[nodiscard]] KOLO_API std::string metrics_json(const Group& group = current_context());
/// All of it as Prometheus reads it (text format): names with "kolo_" before them, in base units (seconds, bytes), each
/// with the label `rank`. What KOLO_METRICS_FILE writes.
[[nodiscard]] KOLO_API std::string metrics_prometheus(const Group& group = current_context());

}  // namespace kolo

#endif  // KOLO_INFO_HPP
