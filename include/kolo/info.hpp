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

/// "0.2.0".
[[nodiscard]] KOLO_API const char* version() noexcept;

/// The libraries and compiler of this build; an empty string for a part that was left out.
struct BuildInfo {
  std::string version;
  std::string compiler;  ///< "GCC 12.2.0"
  std::string mpi;       ///< "Open MPI v4.1.4"
  std::string ucx;       ///< "UCX 1.13": the version of the headers; the library is loaded when it is needed
  std::string cuda;      ///< "CUDA 13.0, NCCL 2.28.9"; empty: this build has no CUDA part
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
[[nodiscard]] KOLO_API std::vector<Setting> settings(const Group& group);
[[nodiscard]] inline std::vector<Setting> settings() { return settings(current_context()); }

/// How `init` would start this process, given these options and the environment: a line for each way, in the order in
/// which they are tried, and which of them is taken.
[[nodiscard]] KOLO_API std::vector<std::string> explain_start(const Options& options = {});

/// Several lines for a person: version, place, nodes, transports, backends and routes chosen.
[[nodiscard]] KOLO_API std::string describe(const Group& group);
[[nodiscard]] inline std::string describe() { return describe(current_context()); }

/// How often a quantity had which size.
struct Histogram {
  std::vector<std::uint64_t> bounds;  ///< the largest value of each bucket but the last, ascending
  std::vector<std::uint64_t> counts;  ///< values in each bucket: one more than bounds
  std::uint64_t count = 0;            ///< of all values
  std::uint64_t sum = 0;              ///< of all values
};

/// Counters of this rank since the context was made. They only rise, unless their comment says otherwise.
struct Metrics {
  std::uint64_t submissions = 0;       ///< requests (a grouped call counts once)
  std::uint64_t signatures_sent = 0;   ///< submissions published with their whole signature; none once steps repeat
  std::uint64_t counts_published = 0;  ///< submissions published as one count
  std::uint64_t log_entries = 0;       ///< read from the log
  std::uint64_t log_bytes = 0;         ///< bytes of these entries
  std::uint64_t batches = 0;           ///< executed
  std::uint64_t planned_batches = 0;   ///< of `batches`: announced by a plan's short entry
  /// A hash of the batches since the last end_step and of their members. Equal digests mean equal batches, in whatever
  /// order they became ready.
  std::uint64_t batch_digest = 0;
  std::uint64_t last_step_digest = 0;   ///< the digest of the step that ended last
  std::uint64_t last_step_batches = 0;  ///< how many batches it had
  std::uint64_t plans = 0;              ///< plans learned
  std::uint64_t plans_voided = 0;
  std::uint64_t tensors = 0;   ///< reduced, gathered or broadcast
  std::uint64_t bytes = 0;     ///< their bytes (this rank's contribution)
  std::uint64_t failures = 0;  ///< handles that failed
  std::uint64_t mismatches = 0;
  std::uint64_t stalls = 0;               ///< stall warnings
  std::uint64_t control_frames_sent = 0;  ///< over TCP, by this rank as a leader
  std::uint64_t control_frames_received = 0;
  std::uint64_t control_bytes_sent = 0;
  std::uint64_t messages_posted = 0;    ///< control messages to the leader, through shared memory
  std::uint64_t sleeps = 0;             ///< how often the background thread went to sleep
  std::uint64_t wakeups_sent = 0;       ///< wake-ups sent to peers that slept
  std::uint64_t driven_by_waiters = 0;  ///< operations completed by a thread that waited
  std::uint64_t driven_by_background = 0;
  std::uint64_t pushes = 0;  ///< how often a rank waited for data of another node for so long that all ranks were asked
                             ///< to move their transports
  std::uint64_t bytes_in_place = 0;  ///< of `bytes`: reduced in a GradientArena, without a copy
  std::uint64_t shortcuts = 0;       ///< submissions that avoided the log: unnamed calls on one node
  // Messages between two ranks, also from a rank to itself, without those that were cancelled or expired. A short
  // message counts as sent before it is received.
  std::uint64_t messages_sent = 0;
  std::uint64_t message_bytes_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t message_bytes_received = 0;
  // Use of the GPU, by NCCL or through pinned memory; 0 without GPU tensors.
  std::uint64_t device_slot_bytes = 0;   ///< bytes of fusion buffers; constant once they are allocated
  std::uint64_t device_arena_bytes = 0;  ///< bytes of arenas now; falls when an arena is gone
  std::uint64_t device_communicators = 0;
  std::uint64_t device_batches = 0;
  std::uint64_t device_steps = 0;           ///< the steps into which batches were cut; each fills at most one fusion
                                            ///< buffer
  std::uint64_t device_bytes_packed = 0;    ///< bytes copied into fusion buffers; the same number is copied out
  std::uint64_t device_bytes_in_place = 0;  ///< bytes that collectives read and wrote in place, arenas included
  /// Calls of NCCL (or, staged, of the CPU's backend): collectives, and each send and each receive.
  std::uint64_t device_calls = 0;
  /// How often the host told other ranks what this one brings to collectives of GPUs whose rows may differ by rank, and
  /// whether there is room for the result.
  std::uint64_t device_exchanges = 0;
  std::uint64_t steps = 0;  ///< that have ended in the world (end_step)
  // Of `bytes`: by the route that they took (docs/tuning.md).
  std::uint64_t bytes_small = 0;          ///< short calls that avoided the log
  std::uint64_t bytes_flat = 0;           ///< each rank that wants the result reduced all inputs by itself
  std::uint64_t bytes_slots = 0;          ///< through the slots of a node, or in an arena
  std::uint64_t bytes_between_nodes = 0;  ///< of groups that have several nodes
  std::uint64_t bytes_alone = 0;          ///< of groups of one rank
  std::uint64_t bytes_on_device = 0;
  /// Of `batches`: those for which other ranks waited for this one, because it was the last to submit. Where no rank is
  /// slow it is about as much on every rank; on a slow one it is nearly all.
  std::uint64_t awaited_batches = 0;
  Histogram negotiation_ns;  ///< from when the engine took a request until all ranks had submitted it; not of shortcuts
  Histogram execution_ns;    ///< from the begin of a batch until it was done
  /// How long threads of the program slept inside Kolo. A wait that ends while its thread still looks is not counted.
  Histogram wait_ns;
  Histogram batch_requests;  ///< requests of a batch
  Histogram batch_bytes;     ///< bytes of a batch: this rank's contribution
};
/// Any thread. Not inside a callback of on_done, where it is an error (invalid_argument).
[[nodiscard]] KOLO_API Metrics metrics(const Group& group);
[[nodiscard]] inline Metrics metrics() { return metrics(current_context()); }

/// As an object of JSON: the members' names and numbers; of a histogram an object of "bounds", "counts", "count",
/// "sum".
[[nodiscard]] KOLO_API std::string to_json(const Metrics& metrics);
/// As Prometheus reads them (text format): names with "kolo_" before them, in base units (seconds, bytes), each with
/// the label `rank`. What KOLO_METRICS_FILE writes.
[[nodiscard]] KOLO_API std::string to_prometheus(const Metrics& metrics, int rank);

}  // namespace kolo

#endif  // KOLO_INFO_HPP
