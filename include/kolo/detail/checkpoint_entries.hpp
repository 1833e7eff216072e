// SPDX-License-Identifier: Apache-2.0

/// @file
/// A program's lists in a checkpoint.
#ifndef KOLO_DETAIL_CHECKPOINT_ENTRIES_HPP
#define KOLO_DETAIL_CHECKPOINT_ENTRIES_HPP

#include <cstdint>
#include <string>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/optimizer_state.hpp>
#include <kolo/parameters.hpp>
#include <kolo/types.hpp>

namespace kolo {
struct CheckpointOptions;
}  // namespace kolo

namespace kolo::detail {

/// Which ranks have a tensor of a checkpoint, and whose is saved.
enum class Held : std::uint8_t {
  alike,            ///< all, with the same values: any rank's
  apart,            ///< all, perhaps with different values (a buffer): rank 0's
  piece,            ///< each has a piece: all of them
  with_some_pieces  ///< those that have a piece of its parameter, with the same values; rank 0 always does: rank 0's
};

/// A tensor of a checkpoint, or the piece of it that lies on this rank.
struct CheckpointEntry {
  std::string name;
  ConstTensorView view;
  Shape shape;  ///< of the whole tensor
  Held held;
  std::int64_t first = 0;  ///< of a piece: its first element
};
using CheckpointEntries = std::vector<CheckpointEntry>;

/// `pieces`: where in their parameter lie those that the state "<kind>/<piece's name>" is of; or, of a piece named
/// "<kind>/<parameter>", that state alone. `stepped`: whose values the optimizer steps, besides those with a gradient.
KOLO_API CheckpointEntries checkpoint_entries(Span<const Parameter> parameters, Span<const ConstNamedView> state,
                                              Span<const Parameter> pieces, Span<const Parameter> stepped,
                                              const CheckpointOptions& options);
/// Where a load writes the same entries.
KOLO_API std::vector<TensorView> checkpoint_targets(Span<const Parameter> parameters, Span<const NamedView> state,
                                                    const CheckpointOptions& options);
KOLO_API void save_checkpoint(const Group& group, const std::string& path, const CheckpointEntries& entries,
                              const CheckpointOptions& options);
KOLO_API void load_checkpoint(const Group& group, const std::string& path, const CheckpointEntries& entries,
                              Span<const TensorView> targets, const CheckpointOptions& options);

/// `places()` and `parameters()`, if the optimizer has them.
template <class Optimizer>
auto places_of(const Optimizer& optimizer, int) -> decltype(Span<const Parameter>(optimizer.places())) {
  return optimizer.places();
}
template <class Optimizer>
Span<const Parameter> places_of(const Optimizer& /*optimizer*/, long) {
  return {};
}
template <class Optimizer>
auto stepped_by(const Optimizer& optimizer, int) -> decltype(optimizer.parameters()) {
  return optimizer.parameters();
}
template <class Optimizer>
Span<const Parameter> stepped_by(const Optimizer& /*optimizer*/, long) {
  return {};
}
template <class Optimizer>
CheckpointEntries entries_with(Span<const Parameter> parameters, const Optimizer& optimizer,
                               Span<const ConstNamedView> state, const CheckpointOptions& options) {
  const auto& stepped = stepped_by(optimizer, 0);
  return checkpoint_entries(parameters, state, places_of(optimizer, 0), stepped, options);
}
template <class Optimizer>
CheckpointEntries entries_to_save(Span<const Parameter> parameters, Optimizer& optimizer,
                                  const CheckpointOptions& options) {
  return entries_with(parameters, optimizer, state_of(optimizer, 0), options);
}

}  // namespace kolo::detail

#endif  // KOLO_DETAIL_CHECKPOINT_ENTRIES_HPP
