// SPDX-License-Identifier: Apache-2.0

/// @file
/// Looking: what this build is, what this job runs on, and what the engine has done.
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

/// What this library was built with; empty strings for what was left out.
struct BuildInfo {
  std::string version;
  std::string compiler;  ///< "GCC 12.2.0"
  std::string mpi;       ///< "Open MPI v4.1.4"
  std::string ucx;       ///< "UCX 1.13": whose headers; the library is loaded when it is wanted
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

/// Counters since the context was made; they only rise, but for what says otherwise. All of this rank alone.
struct Metrics {
  std::uint64_t submissions = 0;       ///< requests (a group counts once)
  std::uint64_t signatures_sent = 0;   ///< submissions published whole: none, once steps repeat
  std::uint64_t counts_published = 0;  ///< submissions published as one count
  std::uint64_t log_entries = 0;       ///< read from the log
  std::uint64_t log_bytes = 0;         ///< of these entries
  std::uint64_t batches = 0;           ///< executed
  std::uint64_t planned_batches = 0;   ///< of these, announced by a plan's short entry
  /// The sum, over the batches since the last end_step, of a hash of each one's members in order: equal digests, equal
  /// batches, whatever the order in which they became ready.
  std::uint64_t batch_digest = 0;
  std::uint64_t last_step_digest = 0;   ///< the digest of the step that ended last
  std::uint64_t last_step_batches = 0;  ///< how many batches it had
  std::uint64_t plans = 0;              ///< defined
  std::uint64_t plans_voided = 0;
  std::uint64_t tensors = 0;   ///< reduced, gathered or broadcast
  std::uint64_t bytes = 0;     ///< payload of these (this rank's contribution)
  std::uint64_t failures = 0;  ///< handles that failed
  std::uint64_t mismatches = 0;
  std::uint64_t stalls = 0;               ///< stall warnings
  std::uint64_t control_frames_sent = 0;  ///< over TCP, by this rank as a leader
  std::uint64_t control_frames_received = 0;
  std::uint64_t control_bytes_sent = 0;
  std::uint64_t messages_posted = 0;    ///< to the leader, through shared memory
  std::uint64_t sleeps = 0;             ///< how often the background thread went to sleep
  std::uint64_t wakeups_sent = 0;       ///< to peers that slept
  std::uint64_t driven_by_waiters = 0;  ///< completions found by a thread that waited
  std::uint64_t driven_by_background = 0;
  std::uint64_t pushes = 0;  ///< how often some rank was starved of what another node's transport might hold back
  std::uint64_t bytes_in_place = 0;  ///< of `bytes`, reduced where they lay, in a GradientArena, without a copy
  std::uint64_t shortcuts = 0;       ///< submissions that avoided the log: unnamed calls on one node
  // Of messages between two ranks, those to itself included, that were not given up. A short one counts as sent before
  // it is received.
  std::uint64_t messages_sent = 0;
  std::uint64_t message_bytes_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t message_bytes_received = 0;
  // What is used on the GPU, by way of NCCL or of pinned memory. All 0 until it is.
  std::uint64_t device_slot_bytes = 0;   ///< of fusion buffers; constant once they are there
  std::uint64_t device_arena_bytes = 0;  ///< of arenas that are there now: falls when one is gone
  std::uint64_t device_communicators = 0;
  std::uint64_t device_batches = 0;
  std::uint64_t device_steps = 0;           ///< what batches were cut into: each fills one fusion buffer at most
  std::uint64_t device_bytes_packed = 0;    ///< copied into fusion buffers, and as many out of them
  std::uint64_t device_bytes_in_place = 0;  ///< that collectives read and wrote where they lay, arenas included
  /// Those for NCCL (or, staged, for the CPU): all-reduces and their like; each send and each receive.
  std::uint64_t device_calls = 0;
};
[[nodiscard]] KOLO_API Metrics metrics(const Group& group);
[[nodiscard]] inline Metrics metrics() { return metrics(current_context()); }

}  // namespace kolo

#endif  // KOLO_INFO_HPP
