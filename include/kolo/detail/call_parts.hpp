// SPDX-License-Identifier: Apache-2.0

/// @file
/// The parts of a `Call`.
#ifndef KOLO_DETAIL_CALL_PARTS_HPP
#define KOLO_DETAIL_CALL_PARTS_HPP

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include <kolo/types.hpp>

namespace kolo {
class Call;
}  // namespace kolo

namespace kolo::detail {

/// The kinds of collectives. The numbers travel between ranks. The library's table of kinds has a row for each.
enum class CollectiveKind : std::uint8_t {
  allreduce = 0,
  allgather = 1,
  broadcast = 2,
  barrier = 3,
  alltoall = 4,         ///< the same number of rows to every rank
  alltoall_splits = 5,  ///< the numbers of rows that each rank's splits give
  reduce_scatter = 6,
  add_process_set = 7,  ///< not for calls: the engine's own
  reduce = 8,
  gather = 9,
  scatter = 10,
  allgather_equal = 11,  ///< the same number of rows from every rank
  alltoall_known = 12,   ///< with splits, of which each rank knows those that the others have for it
  message = 13,          ///< not for calls: a message between two ranks' devices, once both have agreed on it
};

/// The parts of a call. A part that its kind does not use has the default.
struct CallParts {
  CollectiveKind kind = CollectiveKind::barrier;
  bool in_place = false;     ///< `output` is the input, too, and there is no `input`
  bool owns_result = false;  ///< the library makes the memory of the result; there is no `output`
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  int priority = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::optional<DType> send_as = {};
  std::optional<std::chrono::nanoseconds> timeout = {};
  std::optional<ConstTensorView> input = {};
  std::optional<TensorView> output = {};
  std::vector<std::int64_t> splits = {};
  std::vector<std::int64_t> received_splits = {};
  std::optional<Span<const NamedView>> members = {};  ///< of a grouped all-reduce
  std::optional<Span<const Call>> calls = {};         ///< of a grouped call, whose kind is theirs
};

}  // namespace kolo::detail

#endif  // KOLO_DETAIL_CALL_PARTS_HPP
