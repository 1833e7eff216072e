// SPDX-License-Identifier: Apache-2.0
//
// One set's memory of its steps, and the plan that comes of it.
//
// A *step* is what was appended between two ends of step; a set whose members call end_step ends them so, any other at
// a name's second entry. A tensor *repeats* when it was appended in the last two steps under one generation. When a
// step ends, what repeats is what the program does every step; it becomes the plan: in the order of the step that has
// just ended, cut into batches as large as the threshold allows. Cutting anew, rather than repeating the batches of
// that step, matters because those were accidents: how much had gathered when the backend had a free slot.
//
// With priorities. A planned batch is ready with its last member, and then as urgent as its most urgent one. The order
// of the log is no guide then, because what is urgent has overtaken: batches are cut in the order in which the tensors
// became ready, so that members of a batch come at about the same time; and a batch ends before a tensor that is less
// urgent than one of its members, which would have to wait for it. A more urgent one may join: it comes last, and takes
// along what is there, at most the threshold. So gradients that grow more urgent on the way to the first layer are cut
// as ever.
//
// A *cut* is what a broken plan has taught: these members of a batch were there while those were lacking, and somebody
// waited. The two sides never share a batch again. Up to 64 cuts are remembered a set, the oldest forgotten first.
//
// A program that breaks its plans again and again (it waits at random places) is given up on by and by: after the
// eighth break each further one doubles the number of steps until the next plan.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "control/messages.hpp"
#include "control/tensor_table.hpp"

namespace kolo::control {

/// What a batch under construction still takes: tensors of the first one's kind, if requests of that kind may be one
/// batch (core/collectives.hpp, `fuses` and `batches`), up to `threshold` bytes; a tensor that is larger, and any
/// tensor when the threshold is 0, goes alone.
///
/// Where rows differ by rank a signature has the bytes of a row, and nobody here knows of how many. Such a batch is
/// bounded by the number of its tensors, too: so are the lengths that travel before anything else of it, and what is
/// urgent waits for no more than that. On the CPU its members do not wait for each other: they end one by one. On a
/// device all end with the batch, so that such a request goes alone.
class BatchSpace {
 public:
  /// Of a batch whose rows differ by rank. One request may have more, and then is alone.
  static constexpr std::uint64_t kMostUnevenTensors = 64;

  explicit BatchSpace(std::int64_t threshold) : threshold_(threshold) {}
  [[nodiscard]] bool takes(const Tensor& tensor) const noexcept { return takes(*tensor.signature, tensor.bytes); }
  void add(const Tensor& tensor) noexcept { add(*tensor.signature, tensor.bytes); }
  /// `bytes`: the signature's.
  [[nodiscard]] bool takes(const core::Signature& signature, std::int64_t bytes) const noexcept;
  void add(const core::Signature& signature, std::int64_t bytes) noexcept;
  /// Adds as many of these as it takes, one at least and so many at most; says how many.
  std::uint64_t add_alike(const core::Signature& signature, std::int64_t bytes, std::uint64_t most) noexcept;

 private:
  std::int64_t threshold_;
  std::int64_t bytes_ = 0;
  std::uint64_t uneven_tensors_ = 0;
  bool is_shared_ = true;                     ///< what there is of it may have company
  std::optional<core::CollectiveKind> kind_;  ///< none while empty
};

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

  /// A plan was broken: `lacking` (members of `batch`) were not there, the others were.
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
