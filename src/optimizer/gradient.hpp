// SPDX-License-Identifier: Apache-2.0
//
// A parameter's gradient, as a GradientReducer keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <kolo/call.hpp>
#include <kolo/context.hpp>
#include <kolo/types.hpp>

namespace kolo::optimizer {

struct Gradient {
  std::string name;
  std::optional<TensorView> view;  ///< where it lies; empty for a buffer
  int priority = 0;
  std::optional<TensorView> piece = {};  ///< this rank's, if this rank gets only that
  bool announced = false;                ///< in this micro-step
  std::optional<std::size_t> at = {};    ///< in this step: which of the reducer's handles is its own
  Tensor aside = {};                     ///< the earlier micro-steps' sum, while one without samples runs

  // Of a gradient whose memory is given anew in every step (Gets::own_piece_apart):
  bool moves = false;     ///< whether it is such a one
  bool is_placed = true;  ///< `view` is of memory that there is
  Tensor apart = {};      ///< the piece's memory
  Tensor nothing = {};    ///< in place of a gradient that there is none of in this step

  /// From now on its memory is given anew in every step, and this rank's piece is in memory of its own.
  void move_apart();
  /// A gradient without a place in this step is zero.
  void place_nothing();
  /// The step has ended, and the memory belongs to the caller again.
  void end_step();

 private:
  void displace();
};

/// Calls `body` with those that are no buffers.
template <class Body>
void for_each_view(std::vector<Gradient>& gradients, const Body& body) {
  for (Gradient& gradient : gradients) {
    if (gradient.view) body(gradient);
  }
}

/// These elements, in one row.
[[nodiscard]] TensorView flat(const TensorView& view, std::int64_t first, std::int64_t count);

/// Prepares a request "<optimizer>/<what>", and says how to get another name if that one is taken.
[[nodiscard]] Prepared reserve(const Group& group, const std::string& optimizer, const std::string& what,
                               const Call& call);

[[noreturn]] void misused(const std::string& sentence);

}  // namespace kolo::optimizer
