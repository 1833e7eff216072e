// SPDX-License-Identifier: Apache-2.0
#include "optimizer/step_weights.hpp"

#include <exception>
#include <utility>

#include <kolo/collectives.hpp>
#include <kolo/error.hpp>

#include "optimizer/elements.hpp"

namespace kolo::optimizer {

StepSums::StepSums(double samples, bool weighted, int micro_steps) : numbers{samples, weighted ? 1.0 : 0.0, 0, 0, 1} {
  if (!weighted) {
    numbers[2] = micro_steps;
    numbers[3] = static_cast<double>(micro_steps) * micro_steps;
  }
}

bool StepSums::agree() const {
  return micro_steps() == 0 || (weighted() == 0 && ranks() * numbers[3] == micro_steps() * micro_steps());
}

StepWeights::StepWeights(const Group& group, const DistributedOptimizerOptions& options,
                         std::vector<Gradient>& gradients, int priority)
    : group_(group), options_(options), gradients_(gradients) {
  if (gradients.empty()) return;
  AllreduceOptions sum;
  sum.timeout = options.timeout;
  sum.priority = priority;
  // Named after a parameter too, so that optimizers of one name over different parameters stay apart.
  reduction_ =
      reserve(group, options.name, gradients.front().name + " (step)", Call::allreduce(kolo::view(sums_.numbers), sum));
}

// ---------------------------------------------------------------- micro-steps

void StepWeights::check_not_given() const {
  if (options_.op != ReduceOp::average)
    misused("DistributedOptimizer: samples weigh an average; with op sum they have no meaning");
  if (given_) misused("DistributedOptimizer: this micro-step's samples were given already");
}

void StepWeights::check_given() const {
  if (weighted_ && !given_) {
    misused("DistributedOptimizer: this step's earlier micro-steps gave their samples; each must, by "
            "begin_micro_step(samples)");
  }
}

void StepWeights::begin_micro_step(int micro_step, double samples) {
  if (micro_step > 0 && !weighted_)
    misused("DistributedOptimizer: this step's earlier micro-steps gave no samples; all or none must");
  for_each_view(gradients_, [](const Gradient& gradient) {
    const auto what = [&gradient] { return "weigh " + quoted_name(gradient.name) + ", which"; };
    check_computable("DistributedOptimizer: samples", what, gradient.moves ? *gradient.piece : *gradient.view);
  });
  if (samples == 0) {
    set_aside();
  } else {
    if (micro_step > 0) weigh_earlier(samples);
    unit_ = samples;
  }
  weighted_ = given_ = true;
  samples_ += samples;
}

void StepWeights::set_aside() {
  if (unit_ == 0) return;
  for_each_view(gradients_, [](Gradient& gradient) {
    if (gradient.is_placed) {
      if (gradient.aside.data() == nullptr) gradient.aside = Tensor(gradient.view->dtype(), gradient.view->shape());
      copy(*gradient.view, gradient.aside.view());
    } else {
      gradient.aside = Tensor();
    }
  });
  is_aside_ = true;
}

/// What earlier micro-steps have added up to gets the weight of one of so many samples.
void StepWeights::weigh_earlier(double count) {
  if (count == unit_) return;
  for_each_view(gradients_, [&](const Gradient& gradient) {
    if (!gradient.is_placed) return;
    if (unit_ == 0) {
      fill_zero(*gradient.view);  // what micro-steps without samples have left there
    } else {
      scale(*gradient.view, unit_ / count);
    }
  });
}

void StepWeights::put_back(const Gradient& gradient) const {
  if (!is_aside_ || !gradient.is_placed) return;
  if (gradient.aside.data() == nullptr) {
    fill_zero(*gradient.view);  // it had no place before
  } else {
    copy(gradient.aside.view(), *gradient.view);
  }
}

void StepWeights::weigh(const Gradient& gradient) {
  if (weighted_) settle();
  put_back(gradient);
  if (!weight_ || *weight_ == 1.0) return;
  if (*weight_ == 0.0) {
    fill_zero(*gradient.view);  // not 0 x: there may be no number there
  } else {
    scale(*gradient.view, *weight_);
  }
}

// ---------------------------------------------------------------- what the ranks do

void StepWeights::say(int micro_steps) {
  if (gradients_.empty() || settled_ || is_under_way()) return;
  sums_ = StepSums(samples_, weighted_, micro_steps);
  under_way_ = reduction_.start();
}

void StepWeights::listen() {
  sums_ = StepSums();
  under_way_ = reduction_.start();
  Handle(std::move(under_way_)).wait();
  settled_ = true;
}

void StepWeights::settle() {
  if (!is_under_way()) return;
  Handle handle = std::move(under_way_);
  handle.wait();
  settled_ = true;
  if (sums_.weighted() > 0 && agree())
    weight_ = unit_ == 0 ? 0.0 : unit_ * sums_.ranks() * options_.accumulation_steps / sums_.samples();
}

void StepWeights::explain(int micro_steps) const {
  const std::string steps = std::to_string(micro_steps) + (micro_steps == 1 ? " micro-step" : " micro-steps");
  explain(weighted_ ? "the samples of every micro-step" : "no samples, " + steps);
}

void StepWeights::explain(const std::string& what) const {
  check_agreement(group_, "DistributedOptimizer(" + options_.name + "): weights of a step", {what});
  throw Error(ErrorCode::mismatch, "DistributedOptimizer: weights of a step: ranks disagree");
}

void StepWeights::drain() noexcept {
  try {
    if (is_under_way()) Handle(std::move(under_way_)).wait();
  } catch (const std::exception&) {  // told already, or of no interest beside what was
  }
}

void StepWeights::begin_step() {
  end_micro_step();
  settled_ = weighted_ = false;
  samples_ = unit_ = 0;
  sums_ = StepSums();
  weight_.reset();
}

}  // namespace kolo::optimizer
