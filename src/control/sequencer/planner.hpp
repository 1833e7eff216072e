// SPDX-License-Identifier: Apache-2.0
//
// One set's record of its steps, and the plan that follows from it.
//
// A *step* is what was appended between two ends of step. A step ends when all members have called end_step; in a set
// whose members never do, it ends at a name's second entry. A tensor *repeats* when it was appended in the last two
// steps under one generation. When a step ends, the tensors that repeat become the plan: in the order of the step that
// has just ended, cut into batches as large as the threshold allows. The batches of that step are not repeated, because
// their size was an accident: how much had gathered when the backend had a free slot.
//
// Priorities. A planned batch is ready with its last member, and is as urgent as its most urgent one. With priorities,
// batches are not cut in the order of the log, in which urgent tensors have overtaken others. They are cut in the order
// in which tensors became ready, so that members of a batch come at about the same time. A batch ends before a tensor
// that is less urgent than one of its members, because that member would have to wait for it. A more urgent tensor may
// be added. Gradients that grow more urgent towards the first layer are therefore cut as without priorities.
//
// A *cut* is learned from a broken plan: some members of a batch were there while others were lacking, and a rank
// waited. The two sides never share a batch again. A set remembers up to 64 cuts, and forgets the oldest first.
//
// If a program breaks its plans again and again (it waits at random places), plans become rarer: after the eighth break
// each further one doubles the number of steps until the next plan.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "control/messages.hpp"
#include "control/sequencer/tensor_table.hpp"

namespace kolo::control {

class Planner {
 public:
  using Batches = std::vector<std::vector<core::TensorId>>;

  Planner(core::SetId set, TensorTable& tensors, std::int64_t threshold)
      : set_(set), tensors_(tensors), threshold_(threshold) {}

  /// Whether appending this tensor now would be its second time in this step.
  [[nodiscard]] bool repeats(core::TensorId id) const { return tensors_[id].seen == step_; }
  /// The tensor is being appended.
  void note(core::TensorId id);
  [[nodiscard]] std::size_t step_size() const { return order_.size(); }
  /// Ends the step. Returns the batches of a new plan when one is due: something repeats that the present plan, if
  /// there is one, does not hold.
  [[nodiscard]] std::optional<Batches> end_step();

  /// A plan was broken: the members `lacking` of `batch` were missing, and the others were there.
  void learn_cut(const std::vector<core::TensorId>& batch, const std::vector<core::TensorId>& lacking);

 private:
  [[nodiscard]] Batches cut(std::vector<core::TensorId> order) const;

  core::SetId set_;
  TensorTable& tensors_;
  std::int64_t threshold_;
  std::uint64_t step_ = 1;
  std::vector<core::TensorId> order_;  ///< what was appended in this step, each once
  std::uint64_t cuts_ = 0;             ///< learned so far
  std::uint64_t not_before_ = 0;       ///< no plan before this step
};

}  // namespace kolo::control
