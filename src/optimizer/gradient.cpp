// SPDX-License-Identifier: Apache-2.0
#include "optimizer/gradient.hpp"

#include <kolo/collectives.hpp>
#include <kolo/error.hpp>

#include "optimizer/elements.hpp"

namespace kolo::optimizer {

void misused(const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); }

void Gradient::move_apart() {
  moves = true;
  apart = Tensor(piece->dtype(), piece->shape());
  piece = apart.view();
  displace();
}

void Gradient::displace() {
  view = TensorView(nullptr, view->dtype(), view->shape());
  is_placed = false;
  nothing = Tensor();
}

void Gradient::place_nothing() {
  nothing = Tensor(view->dtype(), view->shape());
  view = nothing.view();
  is_placed = true;
  fill_zero(*view);
}

void Gradient::end_step() {
  if (moves) displace();
}

TensorView flat(const TensorView& view, std::int64_t first, std::int64_t count) {
  auto* const data = static_cast<char*>(view.data());
  const std::size_t offset = static_cast<std::size_t>(first) * size_of(view.dtype());
  return {data == nullptr ? nullptr : data + offset, view.dtype(), Shape{count}, view.device(), view.stream()};
}

Prepared reserve(const Group& group, const std::string& optimizer, const std::string& what, const Call& call) {
  try {
    return prepare({group, optimizer + '/' + what}, call);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::duplicate_name) throw;
    throw Error(error.code(), error.status().message() + "; optimizers whose parameters share names need names of " +
                                  "their own (DistributedOptimizerOptions::name)");
  }
}

}  // namespace kolo::optimizer
