// SPDX-License-Identifier: Apache-2.0
//
// The kinds of collectives, and what the library needs to know of each: one row a kind. Checks of arguments, messages,
// negotiation, layout and both data planes read this table; what moves the data of a kind stands beside the CPU's other
// collectives (data/cpu/) and the device's (data/cuda/collectives.cpp).
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
  alltoall = 4,         ///< the same number of rows to everyone
  alltoall_splits = 5,  ///< as many rows as each rank's splits say
  reduce_scatter = 6,
  add_process_set = 7,  ///< `Signature::ranks` are the members, in the set's order
  reduce = 8,
  gather = 9,
  scatter = 10,
};

struct CollectiveTraits {
  CollectiveKind kind;
  std::string_view name;
  bool moves_data = true;    ///< has tensors, which a backend must see; else it is done when all have asked for it
  bool reduces = false;      ///< elements of several ranks become one: op, scales and wire format count
  bool keeps_shape = false;  ///< the output has the shape of the input
  bool rooted = false;       ///< one rank's part differs: the root counts
  bool rows_differ = false;  ///< each rank has a first dimension of its own: the signature has the shape of a row, and
                             ///< the output is asked for when all ranks' rows are known. Each tensor is a run, with a
                             ///< status and an end of its own
  bool scatters_rows = false;  ///< the input's rows are divided among the ranks (data::RowsOf)
  bool fuses = false;          ///< several requests with the same options may run as one
  bool batches = false;        ///< several requests may be one batch, each tensor a run of its own
  bool in_arena = false;       ///< is done where the tensor lies, if that is an arena
  bool makes_set = false;      ///< a process set: for the sequencer alone
  bool needs_all = false;      ///< each rank sends and receives: none can be absent (control/messages.hpp, Joining)
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
