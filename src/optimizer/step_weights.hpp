// SPDX-License-Identifier: Apache-2.0
//
// What this rank's gradients weigh in a step, and whether the ranks agree on that.
//
// Weights. With n samples in a micro-step, and g the gradient of the mean over them, the result is the sum of n x g
// over all ranks and micro-steps, divided by N, the sum of n. It is computed in this order:
//
//     before micro-step 2, 3, ...   what the earlier ones have added up to is multiplied by c / n: c is the number of
//                                   samples of the last micro-step that had any, n that of the one that begins. The
//                                   backward pass adds g to it, so c x memory is the sum of n x g, with c = n from now
//                                   on
//     before it is submitted        the rank's gradient is multiplied by c x ranks x accumulation_steps / N, where
//                                   ranks are those that have not joined
//     by the reduction              the average over ranks, times 1 / accumulation_steps
//
// Each factor is computed in double and rounded once to the gradient's type. Equal samples everywhere make all factors
// exactly 1, and nothing is multiplied: the result is bitwise that without weights. A micro-step without samples has no
// g: what the earlier ones have added up to is set aside while it runs, and put back.
//
// N is a reduction of its own, started where a rank knows its samples, before the last backward pass, and has arrived
// by the time the first gradient is ready. The alternative, to divide the result by N, would need no such wait, but
// also another pass over all gradients. The prescale of the reduction cannot carry the factor: it is part of what ranks
// must agree on.
//
// Agreement. Ranks may also differ in whether they give samples, and in how many micro-steps they have made (flush). A
// rank that gives none does not wait for the others' numbers before it submits its gradients, so one that gives some
// cannot find out by a signature: it would wait before it has submitted any. Therefore every rank says in every step
// what it does, in the reduction that brings N: 40 bytes, which travel with the last gradients. After a disagreement
// all gradients are submitted all the same, because some rank may have submitted its own, and every rank throws.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <kolo/call.hpp>
#include <kolo/context.hpp>
#include <kolo/distributed_optimizer.hpp>

#include "optimizer/gradient.hpp"

namespace kolo::optimizer {

/// What the ranks say of a step, summed. The sums alone tell whether they agree, so every rank finds the same.
struct StepSums {
  std::array<double, 5> numbers{};

  StepSums() = default;
  /// One rank's word.
  StepSums(double samples, bool weighted, int micro_steps);

  [[nodiscard]] double samples() const { return numbers[0]; }
  /// Ranks that give samples.
  [[nodiscard]] double weighted() const { return numbers[1]; }
  /// Of the ranks that give none.
  [[nodiscard]] double micro_steps() const { return numbers[2]; }
  /// Those that have said something: who has joined, or follows, has not.
  [[nodiscard]] double ranks() const { return numbers[4]; }
  [[nodiscard]] bool empty() const { return weighted() == 0 && micro_steps() == 0; }
  /// Either nobody gives samples, and all have made as many micro-steps (when ranks x sum of squares = square of the
  /// sum); or all do, but for ranks that have made no micro-step.
  [[nodiscard]] bool agree() const;
};

/// One thread at a time. Calls of Kolo's throw as they do; what is wrong about a call is an `Error`, invalid_argument.
class StepWeights {
 public:
  /// `gradients` outlives it. If there are any, reserves the name of the agreement's reduction, of this priority.
  StepWeights(const Group& group, const DistributedOptimizerOptions& options, std::vector<Gradient>& gradients,
              int priority);
  StepWeights(const StepWeights&) = delete;
  StepWeights& operator=(const StepWeights&) = delete;

  // -- micro-steps
  /// Throws where samples have no meaning, or were given in this micro-step.
  void check_not_given() const;
  /// Throws where earlier micro-steps of the step gave samples, and this one has not.
  void check_given() const;
  /// Whether this micro-step's samples were given.
  [[nodiscard]] bool is_given() const noexcept { return given_; }
  /// Micro-step `micro_step` of the step, from 0, begins with so many samples: makes room for it in what the earlier
  /// ones have added up to.
  void begin_micro_step(int micro_step, double samples);
  /// Undoes what a micro-step without samples has done to the gradient.
  void put_back(const Gradient& gradient) const;
  /// Multiplies a gradient that is to be reduced. If this rank gives samples it waits for the others' numbers.
  void weigh(const Gradient& gradient);
  void end_micro_step() noexcept { given_ = is_aside_ = false; }

  // -- what the ranks do
  /// Says what this rank does in this step, of which it makes so many micro-steps. Once; further calls do nothing.
  void say(int micro_steps);
  /// Says nothing, on a rank that has no data, and waits for what the others do.
  void listen();
  /// Waits for what the others do, where it is under way.
  void settle();
  [[nodiscard]] bool is_under_way() const { return under_way_.valid(); }
  /// Once it is settled.
  [[nodiscard]] const StepSums& sums() const noexcept { return sums_; }
  [[nodiscard]] bool agree() const { return sums_.agree(); }
  /// Whether gradients are weighed in this step.
  [[nodiscard]] bool weighs() const noexcept { return weight_.has_value(); }
  /// Throws what each rank does. Collective, when they disagree.
  [[noreturn]] void explain(int micro_steps) const;
  [[noreturn]] void explain(const std::string& what) const;

  /// Waits until nothing is under way, whatever becomes of it.
  void drain() noexcept;
  void begin_step();

 private:
  void set_aside();
  void weigh_earlier(double count);

  const Group group_;
  const DistributedOptimizerOptions options_;
  std::vector<Gradient>& gradients_;
  Prepared reduction_;
  StepSums sums_;         // the reduction's memory
  bool settled_ = false;  // what the others do in this step is known
  Handle under_way_;      // valid while the sums are

  bool weighted_ = false;         // this step's micro-steps give their samples
  bool given_ = false;            // this micro-step has
  bool is_aside_ = false;         // this one has none, and the earlier ones' sum is set aside
  double samples_ = 0;            // of this rank, in this step so far
  double unit_ = 0;               // c: samples x gradient is unit x memory
  std::optional<double> weight_;  // by which this rank's gradients are multiplied
};

}  // namespace kolo::optimizer
