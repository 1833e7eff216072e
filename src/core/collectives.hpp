// SPDX-License-Identifier: Apache-2.0
//
// The kinds of collectives, one row each, with what the library must know of them. Checks of arguments, messages,
// negotiation, layout and both data planes read this table. The code that moves a kind's data is in data/cpu/ and
// data/cuda/collectives.cpp. docs/architecture.md ("Changing Kolo") lists the places of a new kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace kolo::core {

/// The number travels between ranks.
enum class CollectiveKind : std::uint8_t {
  allreduce = 0,
  allgather = 1,
  broadcast = 2,
  barrier = 3,
  alltoall = 4,         ///< the same number of rows to every rank
  alltoall_splits = 5,  ///< the numbers of rows that each rank's splits give
  reduce_scatter = 6,
  add_process_set = 7,  ///< `Signature::ranks` are the members, in the set's order
  reduce = 8,
  gather = 9,
  scatter = 10,
};

struct CollectiveTraits {
  CollectiveKind kind;
  std::string_view name;
  bool moves_data = true;    ///< has tensors, which a backend moves; else it is done when all members have submitted it
  bool reduces = false;      ///< reduces elements of several ranks to one: uses op, scales and wire format
  bool keeps_shape = false;  ///< the output has the shape of the input
  bool rooted = false;       ///< one rank's part differs: uses the root
  bool rows_differ = false;  ///< the first dimension may differ by rank: the signature has the shape of a row, and the
                             ///< output is allocated when all ranks' rows are known. Each tensor is a run, with a
                             ///< status and an end of its own
  bool scatters_rows = false;  ///< the input's rows are distributed to the ranks (data::RowsOf)
  bool fuses = false;          ///< several requests with the same options may run as one
  bool batches = false;        ///< several requests may be one batch, each tensor a run of its own
  bool in_arena = false;       ///< can run in place on a tensor in an arena
  bool makes_set = false;      ///< makes a process set: only the sequencer handles it
  bool needs_all = false;      ///< each rank sends and receives, so no rank may be absent (control/messages.hpp,
                               ///< "Joining")
};

inline constexpr CollectiveTraits kCollectives[] = {
    {.kind = CollectiveKind::allreduce,
     .name = "allreduce",
     .reduces = true,
     .keeps_shape = true,
     .fuses = true,
     .in_arena = true},
    {.kind = CollectiveKind::allgather, .name = "allgather", .rows_differ = true, .batches = true},
    {.kind = CollectiveKind::broadcast, .name = "broadcast", .keeps_shape = true, .rooted = true, .fuses = true},
    {.kind = CollectiveKind::barrier, .name = "barrier", .moves_data = false},
    {.kind = CollectiveKind::alltoall, .name = "alltoall", .batches = true, .needs_all = true},
    {.kind = CollectiveKind::alltoall_splits,
     .name = "alltoall with splits",
     .rows_differ = true,
     .batches = true,
     .needs_all = true},
    {.kind = CollectiveKind::reduce_scatter,
     .name = "reduce_scatter",
     .reduces = true,
     .scatters_rows = true,
     .batches = true},
    {.kind = CollectiveKind::add_process_set, .name = "add_process_set", .moves_data = false, .makes_set = true},
    {.kind = CollectiveKind::reduce,
     .name = "reduce",
     .reduces = true,
     .keeps_shape = true,
     .rooted = true,
     .fuses = true},
    {.kind = CollectiveKind::gather, .name = "gather", .rooted = true, .rows_differ = true, .batches = true},
    {.kind = CollectiveKind::scatter,
     .name = "scatter",
     .rooted = true,
     .rows_differ = true,
     .batches = true,
     .needs_all = true},
};
inline constexpr std::size_t kCollectiveCount = std::size(kCollectives);
inline constexpr CollectiveKind kLastCollective = kCollectives[kCollectiveCount - 1].kind;

constexpr const CollectiveTraits& traits_of(CollectiveKind kind) noexcept {
  return kCollectives[static_cast<std::size_t>(kind)];
}
constexpr std::string_view to_string(CollectiveKind kind) noexcept { return traits_of(kind).name; }

namespace detail {
constexpr bool stands_in_its_place() noexcept {
  for (std::size_t i = 0; i < kCollectiveCount; ++i)
    if (static_cast<std::size_t>(kCollectives[i].kind) != i) return false;
  return true;
}
static_assert(stands_in_its_place(), "kCollectives has one row a kind, in the order of their numbers");
}  // namespace detail

}  // namespace kolo::core
