// SPDX-License-Identifier: Apache-2.0
//
// How gradients are reduced, a class for each kind:
//
//     whole     an all-reduce. Every rank gets all of the sum.
//     piece     a reduce-scatter in place: a rank's piece of a gradient is summed where it lies. If the gradient lies
//               elsewhere in every step (Gradient::moves), the reduction cannot be prepared: it is started by name,
//               from the memory of the step into the piece's own.
//     8 bits    in blocks (compressed_gradient.hpp), of the whole or of pieces.
//
// The average of pieces is over the ranks that had data. It is divided out of the pieces alone, after the reduction,
// when the number of those ranks is known. (Of what travels in 16 bits, or is 16 bits, the reduction divides: sums
// might not fit. It also divides by a power of two: that can be undone, and saves a pass.)
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <kolo/call.hpp>
#include <kolo/context.hpp>
#include <kolo/distributed_optimizer.hpp>

#include "optimizer/gradient.hpp"

namespace kolo::optimizer {

/// One thread at a time. Gradients are named by their index in the list that the constructors get, which outlives this.
/// An average is over the ranks and over so many micro-steps.
class Reductions {
 public:
  /// The kind that the options and the gradients ask for. `parameters` are the gradients'. Reserves the gradients'
  /// names.
  static std::unique_ptr<Reductions> make(const Group& group, Span<const Parameter> parameters,
                                          const DistributedOptimizerOptions& options, std::vector<Gradient>& gradients,
                                          detail::GradientReducer::Gets gets);
  virtual ~Reductions() = default;
  Reductions(const Reductions&) = delete;
  Reductions& operator=(const Reductions&) = delete;

  /// Starts to reduce a gradient from where it lies.
  [[nodiscard]] virtual Handle start(std::size_t index, int micro_steps) = 0;
  /// Waits for all that was started (Gradient::at says which handle is whose), and completes the results. `ranks`:
  /// those that had data.
  virtual void finish(std::vector<Handle>& handles, int micro_steps, double ranks) = 0;

  /// See GradientReducer.
  [[nodiscard]] virtual std::vector<ConstNamedView> state() { return {}; }
  [[nodiscard]] virtual std::vector<NamedView> begin_load() { return {}; }
  virtual void end_load() {}
  [[nodiscard]] virtual Span<const Parameter> places() const { return {}; }

 protected:
  Reductions(const Group& group, const DistributedOptimizerOptions& options, std::vector<Gradient>& gradients)
      : group_(group), options_(options), gradients_(gradients) {}

  template <class Body>
  void for_each_view(const Body& body) const {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      if (gradients_[i].view) body(i, gradients_[i]);
    }
  }

  const Group group_;
  const DistributedOptimizerOptions options_;
  std::vector<Gradient>& gradients_;
};

}  // namespace kolo::optimizer
