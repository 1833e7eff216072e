// SPDX-License-Identifier: Apache-2.0

/// @file
/// The engine's own counters.
#ifndef KOLO_DETAIL_COUNTERS_HPP
#define KOLO_DETAIL_COUNTERS_HPP

#include <cstdint>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/info.hpp>

namespace kolo::detail {

/// They only rise, unless their comment says otherwise.
struct Counters : Metrics {
  std::uint64_t signatures_sent = 0;   ///< submissions published with their whole signature; none once steps repeat
  std::uint64_t counts_published = 0;  ///< submissions published as one count
  std::uint64_t log_entries = 0;       ///< read from the log
  std::uint64_t log_bytes = 0;         ///< bytes of these entries
  std::uint64_t planned_batches = 0;   ///< of `batches`: announced by a plan's short entry
  /// A hash of the batches since the last end_step and of their members. Equal digests mean equal batches, in whatever
  /// order they became ready.
  std::uint64_t batch_digest = 0;
  std::uint64_t last_step_digest = 0;   ///< the digest of the step that ended last
  std::uint64_t last_step_batches = 0;  ///< how many batches it had
  std::uint64_t plans = 0;              ///< plans learned
  std::uint64_t plans_voided = 0;
  std::uint64_t shortcuts = 0;            ///< submissions that avoided the log: unnamed calls on one node
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
  // Use of the GPU, by NCCL or through pinned memory; 0 without GPU tensors.
  std::uint64_t device_buffer_bytes = 0;  ///< bytes of fusion buffers; constant once they are allocated
  std::uint64_t device_arena_bytes = 0;   ///< bytes of arenas now; falls when an arena is gone
  std::uint64_t device_communicators = 0;
  std::uint64_t device_batches = 0;
  std::uint64_t device_portions = 0;        ///< into which batches were cut; each fills at most one fusion buffer
  std::uint64_t device_bytes_packed = 0;    ///< bytes copied into fusion buffers; the same number is copied out
  std::uint64_t device_bytes_in_place = 0;  ///< bytes that collectives read and wrote in place, arenas included
  /// Calls of NCCL (or, staged, of the CPU's backend): collectives, and each send and each receive.
  std::uint64_t device_calls = 0;
  /// How often the host told other ranks what this one brings to collectives of GPUs whose rows may differ by rank, and
  /// whether there is room for the result.
  std::uint64_t device_exchanges = 0;
};
/// As `metrics`.
[[nodiscard]] KOLO_API Counters counters(const Group& group = current_context());

}  // namespace kolo::detail

#endif  // KOLO_DETAIL_COUNTERS_HPP
