// SPDX-License-Identifier: Apache-2.0
//
// One step, from the reducer's side:
//
//     micro-step 1 ... k-1   announcements are noted; gradients add up in the caller's memory
//     micro-step k           each gradient is submitted when it is announced, the rest by synchronize()
//     synchronized           all have arrived; the caller may look, clip; finish_micro_step() lets the optimizer step
//
// step_weights.hpp says what a gradient is multiplied by, and whether the ranks agree on the step; reductions.hpp, how
// it is reduced.
//
// Ranks without data. A rank whose pieces others need cannot leave them. It follows: it says nothing in the agreement
// (all numbers are 0), finds there what the others do, and takes part with gradients of zero.
#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/distributed_optimizer.hpp>
#include <kolo/error.hpp>

#include "optimizer/elements.hpp"
#include "optimizer/gradient.hpp"
#include "optimizer/gradient_checks.hpp"
#include "optimizer/reductions.hpp"
#include "optimizer/step_weights.hpp"

namespace kolo {

using detail::GradientReducer;
using optimizer::Gradient;
using optimizer::misused;

struct GradientReducer::Impl {
  const Group group;
  const DistributedOptimizerOptions options;
  const Gets gets;
  std::vector<Gradient> gradients;
  const std::unique_ptr<optimizer::Reductions> reductions;
  optimizer::StepWeights weights;

  int micro_step = 0;         // of this step, from 0
  int mean;                   // over how many micro-steps this step's average is
  bool synchronized = false;  // this step's gradients have arrived

  std::vector<Handle> handles;  // behind what they write to: while an exception unwinds, they end first

  Impl(const Group& ranks, Span<const Parameter> parameters, const DistributedOptimizerOptions& given,
       Gets whole_or_piece)
      : group(ranks), options(given), gets(whole_or_piece), gradients(gradients_of(parameters)),
        reductions(optimizer::Reductions::make(group, parameters, options, gradients, gets)),
        // Gradients may wait for what the ranks say of a step.
        weights(group, options, gradients, optimizer::priorities_of(parameters, options).back()),
        mean(options.accumulation_steps) {
    handles.reserve(gradients.size());
  }

  // A step that has begun is finished, for the other ranks may be in it, too. While an exception unwinds nothing is
  // waited for: the handles see to it that nothing is written any more.
  ~Impl() {
    if (std::uncaught_exceptions() > exceptions_at_birth || !in_flight()) {
      return;
    }
    try {
      or_begin_new_step([this] { reduce(micro_step + 1); });
    } catch (const std::exception&) {  // there is nobody to tell
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Checks that all ranks have the same.
  [[nodiscard]] std::vector<Gradient> gradients_of(Span<const Parameter> parameters) const {
    optimizer::check_options(parameters, options);
    check_agreement(group, "DistributedOptimizer(" + options.name + ")", optimizer::entries_of(parameters, options));
    const std::vector<int> priorities = optimizer::priorities_of(parameters, options);
    std::vector<Gradient> all;
    for (const Parameter& parameter : parameters) {
      all.push_back({parameter.name, parameter.gradient, priorities[all.size()]});
      if (!parameter.gradient || gets == Gets::all) continue;
      all.back().piece = piece_of(group, *parameter.gradient);
      if (gets == Gets::own_piece_apart) all.back().move_apart();
    }
    return all;
  }

  void check_between_steps(const std::string& call) const {
    if (in_flight() || synchronized) {
      misused("DistributedOptimizer: " + call + " in the middle of a step; after step() is the time for it");
    }
  }

  void check_may_be_weighted() const {
    weights.check_not_given();
    if (synchronized || in_flight()) {
      misused("DistributedOptimizer: a micro-step's samples must be given before its first gradient_ready()");
    }
  }

  [[nodiscard]] bool is_last() const { return micro_step + 1 == options.accumulation_steps; }

  // A gradient of this rank's, or what it says of the step, is on its way.
  [[nodiscard]] bool in_flight() const { return !handles.empty() || weights.is_under_way(); }

  [[nodiscard]] bool has_begun_micro_step() const {
    return weights.is_given() || synchronized || in_flight() ||
           std::any_of(gradients.begin(), gradients.end(), [](const Gradient& gradient) { return gradient.announced; });
  }

  void start(Gradient& gradient) {
    gradient.at = handles.size();
    handles.push_back(reductions->start(static_cast<std::size_t>(&gradient - gradients.data()), mean));
  }

  void submit(Gradient& gradient) {
    gradient.announced = true;
    if (!gradient.is_placed) {
      gradient.place_nothing();
    }
    weights.weigh(gradient);
    start(gradient);
  }

  void submit_nothing(Gradient& gradient) {
    if (gradient.is_placed) {
      optimizer::fill_zero(*gradient.view);
    } else {
      gradient.place_nothing();
    }
    start(gradient);
  }

  // Waits for all gradients that were submitted.
  void finish() {
    reductions->finish(handles, mean, weights.sums().ranks());
    handles.clear();
    synchronized = true;
  }

  // Submits what is left of a step in which this rank has made so many micro-steps, and waits for all of it.
  void reduce(int micro_steps) {
    for (auto gradient = gradients.rbegin(); gradient != gradients.rend(); ++gradient) {
      if (gradient->view && !gradient->announced) {
        submit(*gradient);
      }
    }
    weights.say(micro_steps);
    weights.settle();
    if (!weights.agree()) {
      drain();
      weights.explain(micro_steps);
    }
    finish();
  }

  // Reduces what the micro-steps so far have added up to; whether there was anything.
  bool reduce_early() {
    weights.say(micro_step);
    weights.settle();
    if (gradients.empty() ? micro_step == 0 : weights.sums().empty()) {
      return false;
    }
    if (!weights.weighs() && weights.agree() && options.op == ReduceOp::average && micro_step > 0) {
      mean = micro_step;
    }
    reduce(micro_step);
    return true;
  }

  // Takes part in a step of the others, with nothing. Whether the optimizer is to step; nothing: nobody has data.
  std::optional<bool> follow() {
    weights.listen();
    const optimizer::StepSums& sums = weights.sums();
    if (sums.ranks() == 0) {
      return std::nullopt;
    }
    if (sums.agree() && sums.empty()) {
      return false;
    }
    if (sums.agree() && sums.weighted() == 0) {
      mean = static_cast<int>(sums.micro_steps() / sums.ranks());
    }
    optimizer::for_each_view(gradients, [this](Gradient& gradient) { submit_nothing(gradient); });
    if (!sums.agree()) {
      drain();
      weights.explain("nothing, as it has joined");
    }
    finish();
    return true;
  }

  // Waits until nothing is in flight, whatever becomes of it.
  void drain() noexcept {
    weights.drain();
    try {
      wait_all(handles);
    } catch (const std::exception&) {  // told already, or of no interest beside what was
    }
  }

  void begin_new_micro_step() {
    for (Gradient& gradient : gradients) {
      gradient.announced = false;
      gradient.at.reset();
    }
    weights.end_micro_step();
  }

  void begin_new_step() {
    begin_new_micro_step();
    handles.clear();
    optimizer::for_each_view(gradients, [](Gradient& gradient) { gradient.end_step(); });
    weights.begin_step();
    micro_step = 0;
    mean = options.accumulation_steps;
    synchronized = false;
  }

  // Runs `body`; when it fails nothing stays in flight, and a new step begins.
  template <class Body>
  void or_begin_new_step(const Body& body) {
    try {
      body();
    } catch (...) {
      drain();
      begin_new_step();
      throw;
    }
  }

  const int exceptions_at_birth = std::uncaught_exceptions();
};

TensorView piece_of(const Group& group, const TensorView& tensor) {
  const std::int64_t ranks = size(group);
  const std::int64_t rank = kolo::rank(group);
  const std::int64_t each = tensor.elements() / ranks;
  const std::int64_t larger = tensor.elements() % ranks;
  return optimizer::flat(tensor, each * rank + std::min(rank, larger), each + (rank < larger ? 1 : 0));
}

GradientReducer::GradientReducer(const Group& group, Span<const Parameter> parameters,
                                 const DistributedOptimizerOptions& options, Gets gets)
    : impl_(std::make_unique<Impl>(group, parameters, options, gets)) {}
GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;
GradientReducer::~GradientReducer() = default;

GradientReducer::Impl& GradientReducer::impl() const {
  if (!impl_) {
    misused("this DistributedOptimizer was moved from");
  }
  return *impl_;
}

void GradientReducer::begin_micro_step(std::size_t samples) {
  Impl& self = impl();
  self.check_may_be_weighted();
  self.weights.begin_micro_step(self.micro_step, static_cast<double>(samples));
  if (self.is_last()) {
    self.or_begin_new_step([&] { self.weights.say(self.micro_step + 1); });
  }
}

void GradientReducer::give_samples_late(std::size_t samples) {
  Impl& self = impl();
  self.check_may_be_weighted();
  if (self.options.accumulation_steps > 1) {
    misused("DistributedOptimizer: step(samples) comes after the backward pass has added to earlier micro-steps' "
            "gradients; with accumulation_steps above 1 give the samples before it, by begin_micro_step(samples)");
  }
  begin_micro_step(samples);
}

void GradientReducer::gradient_ready(std::size_t index) {
  Impl& self = impl();
  if (index >= self.gradients.size()) {
    misused("DistributedOptimizer: gradient_ready(" + std::to_string(index) +
            "): there is no such parameter; there are " + std::to_string(self.gradients.size()) + ", numbered from 0");
  }
  Gradient& gradient = self.gradients[index];
  const auto refuse = [&](const char* why) {
    misused("DistributedOptimizer: gradient_ready(" + std::to_string(index) + "): " + quoted_name(gradient.name) + ' ' +
            why);
  };
  if (!gradient.view) {
    refuse("is a buffer and has no gradient");
  }
  if (self.synchronized) {
    refuse("was reduced by synchronize() already; step() comes next");
  }
  if (gradient.announced) {
    refuse("was announced already in this micro-step");
  }
  self.weights.check_given();
  gradient.announced = true;
  if (self.is_last()) {
    self.or_begin_new_step([&] { self.submit(gradient); });
  }
}

void GradientReducer::place(std::size_t index, const TensorView& memory) {
  Impl& self = impl();
  const auto refuse = [&](const std::string& why) {
    misused("DistributedOptimizer: place(" + std::to_string(index) + "): " + why);
  };
  if (self.gets != Gets::own_piece_apart || index >= self.gradients.size() || !self.gradients[index].view) {
    refuse("there is no gradient of this number whose memory may change");
  }
  Gradient& gradient = self.gradients[index];
  if (gradient.at) {
    refuse(quoted_name(gradient.name) + " is being reduced, or was; the next step is the time for it");
  }
  if (memory.dtype() != gradient.view->dtype() || memory.elements() != gradient.view->elements() ||
      memory.device() != cpu()) {
    refuse(quoted_name(gradient.name) + " is " + std::string(to_string(gradient.view->dtype())) + ' ' +
           to_string(gradient.view->shape()) + " on the CPU; the memory is " + std::string(to_string(memory.dtype())) +
           ' ' + to_string(memory.shape()) + " on " + to_string(memory.device()));
  }
  gradient.view = memory;
  gradient.is_placed = true;
}

const TensorView& GradientReducer::piece(std::size_t index) const { return impl().gradients.at(index).piece.value(); }

bool GradientReducer::is_free(std::size_t index) const {
  const Impl& self = impl();
  const Gradient& gradient = self.gradients.at(index);
  if (!gradient.is_placed || self.synchronized) {
    return true;
  }
  return gradient.at && *gradient.at < self.handles.size() && self.handles[*gradient.at].done();
}

bool GradientReducer::synchronize() {
  Impl& self = impl();
  if (self.synchronized) {
    return true;
  }
  self.weights.check_given();
  if (!self.is_last()) {
    return false;
  }
  self.or_begin_new_step([&] { self.reduce(self.micro_step + 1); });
  return true;
}

bool GradientReducer::finish_micro_step() {
  if (synchronize()) {
    impl_->begin_new_step();
    return true;
  }
  Impl& self = *impl_;
  optimizer::for_each_view(self.gradients, [&](const Gradient& gradient) { self.weights.put_back(gradient); });
  ++self.micro_step;
  self.begin_new_micro_step();
  return false;
}

bool GradientReducer::flush() {
  Impl& self = impl();
  if (self.has_begun_micro_step()) {
    misused("DistributedOptimizer: flush() in the middle of a micro-step; step() ends it");
  }
  bool reduced = false;
  self.or_begin_new_step([&] { reduced = self.reduce_early(); });
  self.begin_new_step();
  return reduced;
}

bool GradientReducer::follow_step() {
  Impl& self = impl();
  if (self.gets == Gets::all || self.micro_step > 0 || self.has_begun_micro_step()) {
    misused("DistributedOptimizer: follow_step() is for a rank whose last step has ended, with gradients in pieces");
  }
  std::optional<bool> steps = false;
  while (steps && !*steps && !self.gradients.empty()) {
    self.or_begin_new_step([&] { steps = self.follow(); });
    self.begin_new_step();
  }
  return steps && *steps;
}

std::vector<ConstNamedView> GradientReducer::state() const {
  Impl& self = impl();
  self.check_between_steps("state()");
  return self.reductions->state();
}

std::vector<NamedView> GradientReducer::begin_load() {
  Impl& self = impl();
  self.check_between_steps("begin_load()");
  return self.reductions->begin_load();
}

void GradientReducer::end_load() { impl().reductions->end_load(); }

Span<const Parameter> GradientReducer::places() const { return impl().reductions->places(); }

void GradientReducer::end_step() { kolo::end_step(impl().group); }

bool GradientReducer::unscale(double scale) {
  bool is_finite = true;
  optimizer::for_each_view(impl().gradients, [&](const Gradient& gradient) {
    const TensorView& view = gradient.piece ? *gradient.piece : *gradient.view;
    const auto what = [&gradient] { return "the gradient of " + quoted_name(gradient.name); };
    optimizer::check_computable("LossScaler", what, view);
    is_finite = optimizer::unscale(view, scale) && is_finite;
  });
  return is_finite;
}

bool GradientReducer::may_zero() const {
  if (!impl().handles.empty()) {
    misused("DistributedOptimizer: zero_grad() while gradients are being reduced; step() or synchronize() comes first");
  }
  return impl_->micro_step == 0;
}

std::size_t GradientReducer::finished() const {
  const Impl& self = impl();
  if (self.synchronized) {
    return static_cast<std::size_t>(std::count_if(self.gradients.begin(), self.gradients.end(),
                                                  [](const Gradient& g) { return g.view.has_value(); }));
  }
  return static_cast<std::size_t>(
      std::count_if(self.handles.begin(), self.handles.end(), [](const Handle& handle) { return handle.done(); }));
}

}  // namespace kolo
