// SPDX-License-Identifier: Apache-2.0
//
// A parameter's gradient, as a GradientReducer keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <kolo/call.hpp>
#include <kolo/context.hpp>
#include <kolo/types.hpp>

#include "optimizer/compressed_gradient.hpp"

namespace kolo::optimizer {

struct Gradient {
  std::string name;
  std::optional<TensorView> view;  // empty for a buffer
  Prepared reduction;
  bool announced = false;  // in this micro-step
  Tensor aside;            // the earlier micro-steps' sum, while one without samples runs
  int priority = 0;
  std::optional<TensorView> piece = {};  // this rank's, with Gets::own_piece and own_piece_apart
  // With Gets::own_piece_apart:
  bool is_placed = true;               // `view` is of memory that there is
  Tensor apart = {};                   // the piece's memory
  Tensor nothing = {};                 // in place of a gradient that there is none of in this step
  std::optional<std::size_t> at = {};  // which of the handles is its own
  std::unique_ptr<CompressedGradient> compressed = {};

  // With Gets::own_piece_apart:
  void move_apart();
  void displace();
  // A gradient that has no place is zero.
  void place_nothing();
};

/// These elements, in one row.
[[nodiscard]] TensorView flat(const TensorView& view, std::int64_t first, std::int64_t count);

/// Prepares a request "<optimizer>/<what>", and says how to get another name if that one is taken.
[[nodiscard]] Prepared reserve(const Group& group, const std::string& optimizer, const std::string& what,
                               const Call& call);

[[noreturn]] void misused(const std::string& sentence);

}  // namespace kolo::optimizer
