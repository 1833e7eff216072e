// SPDX-License-Identifier: Apache-2.0
//
// What this rank's gradients weigh in a step, and whether the ranks agree on that.
//
// Weights (begin_micro_step). With n samples in a micro-step, and g the gradient of the mean over them, the result is
// the sum of n x g over all ranks and micro-steps, divided by N, the sum of n. It is computed in this order:
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

namespace kolo::optimizer {

// What the ranks say of a step, summed. The sums alone tell whether they agree, so every rank finds the same.
struct StepSums {
  std::array<double, 5> numbers{};

  StepSums() = default;
  // One rank's word.
  StepSums(double samples, bool weighted, int micro_steps) : numbers{samples, weighted ? 1.0 : 0.0, 0, 0, 1} {
    if (!weighted) {
      numbers[2] = micro_steps;
      numbers[3] = static_cast<double>(micro_steps) * micro_steps;
    }
  }

  [[nodiscard]] double samples() const { return numbers[0]; }
  // Ranks that give samples.
  [[nodiscard]] double weighted() const { return numbers[1]; }
  // Of the ranks that give none.
  [[nodiscard]] double micro_steps() const { return numbers[2]; }
  // Those that have said something: who has joined, or follows, has not.
  [[nodiscard]] double ranks() const { return numbers[4]; }
  [[nodiscard]] bool empty() const { return weighted() == 0 && micro_steps() == 0; }
  // Either nobody gives samples, and all have made as many micro-steps (when ranks x sum of squares = square of the
  // sum); or all do, but for ranks that have made no micro-step.
  [[nodiscard]] bool agree() const {
    return micro_steps() == 0 || (weighted() == 0 && ranks() * numbers[3] == micro_steps() * micro_steps());
  }
};

}  // namespace kolo::optimizer
