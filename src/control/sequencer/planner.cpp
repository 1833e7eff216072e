// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/planner.hpp"

#include <algorithm>

#include "control/sequencer/batch_space.hpp"

namespace kolo::control {

using core::TensorId;

namespace {
constexpr std::uint64_t kCutsRemembered = 64;
constexpr std::uint64_t kPatience = 8;      // breaks that cost nothing
constexpr std::uint64_t kLongestPause = 8;  // at most 2^8 steps without a plan
}  // namespace

void Planner::note(TensorId id) {
  Tensor& tensor = tensors_[id];
  if (tensor.seen == step_) return;
  tensor.seen_before = tensor.seen;
  tensor.seen = step_;
  tensor.seen_as = tensor.came;
  order_.push_back(id);
}

std::optional<Planner::Batches> Planner::end_step() {
  std::vector<TensorId> repeating;
  bool is_news = false;
  for (const TensorId id : order_) {
    const Tensor& tensor = tensors_[id];
    // An id that was evicted since, or means another name by now (perhaps of another set), was not seen in this step.
    if (!tensor.used || tensor.set != set_ || tensor.seen != step_ || step_ == 1 || tensor.seen_before != step_ - 1)
      continue;
    repeating.push_back(id);
    is_news = is_news || !tensor.planned;
  }
  order_.clear();
  ++step_;
  if (!is_news || step_ < not_before_) return std::nullopt;
  return cut(std::move(repeating));
}

void Planner::learn_cut(const std::vector<TensorId>& batch, const std::vector<TensorId>& lacking) {
  const std::uint64_t bit = std::uint64_t{1} << (cuts_ % kCutsRemembered);
  if (cuts_ >= kCutsRemembered) {
    for (const TensorId id : tensors_.of_set(set_)) {
      tensors_[id].cut_ready &= ~bit;
      tensors_[id].cut_lacking &= ~bit;
    }
  }
  for (const TensorId id : batch) {
    const bool lacks = std::find(lacking.begin(), lacking.end(), id) != lacking.end();
    (lacks ? tensors_[id].cut_lacking : tensors_[id].cut_ready) |= bit;
  }
  ++cuts_;
  if (cuts_ > kPatience) not_before_ = step_ + (std::uint64_t{1} << std::min(cuts_ - kPatience, kLongestPause));
}

Planner::Batches Planner::cut(std::vector<TensorId> order) const {
  const auto differs = [&](TensorId id) { return tensors_[id].priority != tensors_[order.front()].priority; };
  if (std::any_of(order.begin(), order.end(), differs)) {
    std::sort(order.begin(), order.end(),
              [&](TensorId a, TensorId b) { return tensors_[a].seen_as < tensors_[b].seen_as; });
  }
  Batches batches;
  BatchSpace space(threshold_);
  std::uint64_t ready = 0;
  std::uint64_t lacking = 0;
  std::int32_t highest = 0;
  for (const TensorId id : order) {
    const Tensor& tensor = tensors_[id];
    const bool forced =
        (ready & tensor.cut_lacking) != 0 || (lacking & tensor.cut_ready) != 0 || tensor.priority < highest;
    if (batches.empty() || forced || !space.takes(tensor)) {
      batches.emplace_back();
      space = BatchSpace(threshold_);
      ready = lacking = 0;
    }
    highest = tensor.priority;  // it is no less urgent than those before it
    batches.back().push_back(id);
    space.add(tensor);
    ready |= tensor.cut_ready;
    lacking |= tensor.cut_lacking;
  }
  return batches;
}

}  // namespace kolo::control
