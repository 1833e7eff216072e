// SPDX-License-Identifier: Apache-2.0
//
// The kinds of collectives, one row each, with what the library must know of them. Checks of arguments, messages,
// negotiation, layout and both data planes read this table. The code that moves a kind's data is in data/cpu/ and
// data/cuda/collective_portions.cpp. docs/architecture.md ("Changing Kolo") lists the places of a new kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include <kolo/call.hpp>

namespace kolo::core {

using kolo::detail::CollectiveKind;

/// How the shapes of a rank's input and output are related.
enum class Shapes : std::uint8_t {
  none,       ///< there are no tensors: it is done when all members have submitted it
  same,       ///< the output has the shape of the input
  gathered,   ///< the output has all ranks' rows
  scattered,  ///< the root's rows are distributed
  exchanged,  ///< each rank's rows are distributed
  own_rows,   ///< the output has this rank's rows (data::RowsOf) of a result that has the shape of the input
};

struct CollectiveTraits {
  CollectiveKind kind;
  std::string_view name;
  Shapes shapes = Shapes::none;
  bool reduces = false;         ///< reduces elements of several ranks to one: uses op, scales and wire format
  bool rooted = false;          ///< one rank's part differs: uses the root
  bool result_at_root = false;  ///< only the root gets a result
  bool rows_differ = false;  ///< the first dimension may differ by rank: the signature has the shape of a row, and the
                             ///< output is allocated when all ranks' rows are known. Each tensor is a run, with a
                             ///< status and an end of its own
  bool fuses = false;        ///< several requests with the same options may run as one
  bool batches = false;      ///< several requests may be one batch, each tensor a run of its own
  bool cpu_only = false;     ///< data/cuda/collective_portions.cpp has no row of it
  bool in_arena = false;     ///< can run in place on a tensor in an arena
  bool makes_set = false;    ///< makes a process set: only the sequencer handles it
  bool needs_all = false;    ///< each rank sends and receives, so no rank may be absent (control/messages.hpp,
                             ///< "Joining")
};

inline constexpr CollectiveTraits kCollectives[] = {
    {.kind = CollectiveKind::allreduce,
     .name = "allreduce",
     .shapes = Shapes::same,
     .reduces = true,
     .fuses = true,
     .in_arena = true},
    {.kind = CollectiveKind::allgather,
     .name = "allgather",
     .shapes = Shapes::gathered,
     .rows_differ = true,
     .batches = true},
    {.kind = CollectiveKind::broadcast, .name = "broadcast", .shapes = Shapes::same, .rooted = true, .fuses = true},
    {.kind = CollectiveKind::barrier, .name = "barrier"},
    {.kind = CollectiveKind::alltoall,
     .name = "alltoall",
     .shapes = Shapes::exchanged,
     .batches = true,
     .needs_all = true},
    {.kind = CollectiveKind::alltoall_splits,
     .name = "alltoall with splits",
     .shapes = Shapes::exchanged,
     .rows_differ = true,
     .batches = true,
     .needs_all = true},
    {.kind = CollectiveKind::reduce_scatter,
     .name = "reduce_scatter",
     .shapes = Shapes::own_rows,
     .reduces = true,
     .batches = true},
    {.kind = CollectiveKind::add_process_set, .name = "add_process_set", .makes_set = true},
    {.kind = CollectiveKind::reduce,
     .name = "reduce",
     .shapes = Shapes::same,
     .reduces = true,
     .rooted = true,
     .result_at_root = true,
     .fuses = true},
    {.kind = CollectiveKind::gather,
     .name = "gather",
     .shapes = Shapes::gathered,
     .rooted = true,
     .result_at_root = true,
     .rows_differ = true,
     .batches = true},
    {.kind = CollectiveKind::scatter,
     .name = "scatter",
     .shapes = Shapes::scattered,
     .rooted = true,
     .rows_differ = true,
     .batches = true,
     .needs_all = true},
    {.kind = CollectiveKind::allgather_equal,
     .name = "allgather_equal",
     .shapes = Shapes::gathered,
     .batches = true,
     .needs_all = true},
    {.kind = CollectiveKind::alltoall_known,
     .name = "alltoall with splits of both sides",
     .shapes = Shapes::exchanged,
     .rows_differ = true,
     .batches = true,
     .needs_all = true},
    {.kind = CollectiveKind::message, .name = "message", .shapes = Shapes::same, .rooted = true, .needs_all = true},
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
