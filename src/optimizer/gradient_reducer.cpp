// SPDX-License-Identifier: Apache-2.0
//
// One step, from the reducer's side:
//
//     micro-step 1 ... k-1   announcements are noted; gradients add up in the caller's memory
//     micro-step k           each gradient is submitted when it is announced, the rest by synchronize()
//     synchronized           all have arrived; the caller may look, clip; finish_micro_step() lets the optimizer step
//
// Weights (begin_micro_step). Rank r's gradient is multiplied by w_r = samples_r x size / (sum of samples) before it is
// submitted, and the reduction averages as ever. The sum of samples is a reduction of its own, of one number; it is
// started where the samples are known, before the backward pass, and has arrived by the time the first gradient is
// ready. The alternative, to multiply by samples_r and divide the result by the sum, would need no such wait, but its
// products overflow 16-bit gradients, and equal batches would not give bitwise what they give without weights; here
// their w_r is exactly 1. The prescale of the reduction cannot carry w_r: it is part of what ranks must agree on.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/distributed_optimizer.hpp>
#include <kolo/error.hpp>

#include "optimizer/agreement.hpp"
#include "optimizer/elements.hpp"

namespace kolo {
namespace {

[[noreturn]] void misused(const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); }

struct Gradient {
  std::string name;
  std::optional<TensorView> view;  // empty for a buffer
  Prepared reduction;
  bool announced = false;  // in this micro-step
};

std::vector<std::string> entries_of(Span<const Parameter> parameters, const DistributedOptimizerOptions& options) {
  std::vector<std::string> entries{"op " + std::string(to_string(options.op)),
                                   "accumulation_steps " + std::to_string(options.accumulation_steps)};
  if (options.send_gradients_as) {
    entries.push_back("send_gradients_as " + std::string(to_string(*options.send_gradients_as)));
  }
  for (const Parameter& parameter : parameters) {
    entries.push_back(parameter.gradient ? optimizer::describe(parameter.name, *parameter.gradient)
                                         : parameter.name + " without gradient");
  }
  return entries;
}

void check_options(Span<const Parameter> parameters, const DistributedOptimizerOptions& options) {
  std::vector<std::string_view> names;
  for (const Parameter& parameter : parameters) {
    names.push_back(parameter.name);
  }
  optimizer::check_names("DistributedOptimizer", names);
  if (options.op != ReduceOp::average && options.op != ReduceOp::sum) {
    misused("DistributedOptimizer: op is " + std::string(to_string(options.op)) + "; gradients are averaged or summed");
  }
  if (options.accumulation_steps < 1) {
    misused("DistributedOptimizer: accumulation_steps is " + std::to_string(options.accumulation_steps) +
            "; it must be 1 or more");
  }
  if (options.send_gradients_as && *options.send_gradients_as != DType::float16 &&
      *options.send_gradients_as != DType::bfloat16) {
    misused("DistributedOptimizer: send_gradients_as is " + std::string(to_string(*options.send_gradients_as)) +
            "; only float16 and bfloat16 make sense");
  }
}

}  // namespace

struct GradientReducer::Impl {
  Context& context;
  const DistributedOptimizerOptions options;
  std::vector<Gradient> gradients;
  Prepared sum_of_samples;

  int micro_step = 0;         // of this step, from 0
  bool synchronized = false;  // this step's gradients have arrived
  std::vector<Handle> handles;

  bool weighted = false;         // this step's micro-steps give their samples
  bool has_samples = false;      // this micro-step has
  double samples = 0;            // of this rank, in this step so far
  double all_samples = 0;        // of all ranks; the reduction's memory
  Handle samples_handle;         // valid while the sum is under way
  std::optional<double> weight;  // w_r, once the sum has arrived

  Impl(Context& owner, Span<const Parameter> parameters, const DistributedOptimizerOptions& given)
      : context(owner), options(given) {
    check_options(parameters, options);
    check_agreement(context, "DistributedOptimizer(" + options.name + ")", entries_of(parameters, options));
    prepare(parameters);
  }

  void prepare(Span<const Parameter> parameters) {
    AllreduceOptions reduce;
    reduce.op = options.op;
    reduce.timeout = options.timeout;
    reduce.send_as = options.send_gradients_as;
    if (options.op == ReduceOp::average) {
      reduce.postscale = 1.0 / options.accumulation_steps;
    }
    for (const Parameter& parameter : parameters) {
      Gradient gradient{parameter.name, parameter.gradient, {}, false};
      if (gradient.view) {
        gradient.reduction = reserve(gradient.name, *gradient.view, reduce);
      }
      gradients.push_back(std::move(gradient));
    }
    handles.reserve(gradients.size());
    if (gradients.empty()) {
      return;
    }
    // Named after a parameter too, so that optimizers of one name over different parameters stay apart.
    AllreduceOptions sum;
    sum.timeout = options.timeout;
    sum_of_samples = reserve(gradients.front().name + " (samples)", kolo::view(&all_samples, Shape{}), sum);
  }

  // Prepares a reduction under this optimizer's name, which must be free.
  Prepared reserve(const std::string& what, const TensorView& view, const AllreduceOptions& reduce) const {
    try {
      return prepare_allreduce(context, options.name + '/' + what, view, reduce);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::duplicate_name) {
        throw;
      }
      throw Error(error.code(), error.status().message() + "; optimizers whose parameters share names need names of " +
                                    "their own (DistributedOptimizerOptions::name)");
    }
  }

  [[nodiscard]] bool is_last() const { return micro_step + 1 == options.accumulation_steps; }

  // A gradient of this rank's is on its way.
  [[nodiscard]] bool in_flight() const { return !handles.empty(); }

  void check_samples_given() const {
    if (weighted && !has_samples) {
      misused("DistributedOptimizer: this step's earlier micro-steps gave their samples; each must, by "
              "begin_micro_step(samples) or step(samples)");
    }
  }

  void start_sum_of_samples() {
    all_samples = samples;
    samples_handle = sum_of_samples.start();
  }

  // Waits for the sum of samples, where it is under way.
  void settle_weight() {
    if (!samples_handle.valid()) {
      return;
    }
    Handle handle = std::move(samples_handle);
    handle.wait();
    weight = all_samples == 0 ? 0.0 : samples * context.size() / all_samples;
  }

  void submit(Gradient& gradient) {
    settle_weight();
    if (weight && *weight == 0.0) {
      optimizer::fill_zero(*gradient.view);  // not 0 x: there may be no number there
    } else if (weight && *weight != 1.0) {
      optimizer::scale(*gradient.view, *weight);
    }
    handles.push_back(gradient.reduction.start());
  }

  void submit_rest() {
    for (auto gradient = gradients.rbegin(); gradient != gradients.rend(); ++gradient) {
      if (gradient->view && !gradient->announced) {
        gradient->announced = true;
        submit(*gradient);
      }
    }
    settle_weight();  // a list without gradients has submitted nothing
  }

  // Waits until nothing is in flight, whatever becomes of it.
  void drain() noexcept {
    try {
      if (samples_handle.valid()) {
        Handle(std::move(samples_handle)).wait();
      }
    } catch (const std::exception&) {  // told already, or of no interest beside what was
    }
    try {
      wait_all(handles);
    } catch (const std::exception&) {
    }
  }

  void begin_new_step() {
    for (Gradient& gradient : gradients) {
      gradient.announced = false;
    }
    handles.clear();
    micro_step = 0;
    synchronized = false;
    weighted = has_samples = false;
    samples = 0;
    weight.reset();
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
};

GradientReducer::GradientReducer(Context& context, Span<const Parameter> parameters,
                                 const DistributedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(context, parameters, options)) {}
GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;
GradientReducer::~GradientReducer() = default;

void GradientReducer::begin_micro_step(std::size_t samples) {
  Impl& self = *impl_;
  if (self.options.op != ReduceOp::average) {
    misused("DistributedOptimizer: samples weigh an average; with op sum they have no meaning");
  }
  if (self.has_samples) {
    misused("DistributedOptimizer: this micro-step's samples were given already");
  }
  if (self.synchronized || self.in_flight()) {
    misused("DistributedOptimizer: a micro-step's samples must be given before its first gradient_ready()");
  }
  if (self.micro_step > 0 && !self.weighted) {
    misused("DistributedOptimizer: this step's earlier micro-steps gave no samples; all or none must");
  }
  for (const Gradient& gradient : self.gradients) {
    if (!gradient.view) {
      continue;
    }
    optimizer::check_computable("DistributedOptimizer: samples", "weigh \"" + gradient.name + "\", which",
                                *gradient.view);
  }
  self.weighted = self.has_samples = true;
  self.samples += static_cast<double>(samples);
  if (self.is_last() && !self.gradients.empty()) {
    self.or_begin_new_step([&] { self.start_sum_of_samples(); });
  }
}

void GradientReducer::gradient_ready(std::size_t index) {
  Impl& self = *impl_;
  if (index >= self.gradients.size()) {
    misused("DistributedOptimizer: gradient_ready(" + std::to_string(index) + "), but there are " +
            std::to_string(self.gradients.size()) + " parameters");
  }
  Gradient& gradient = self.gradients[index];
  const std::string call =
      "DistributedOptimizer: gradient_ready(" + std::to_string(index) + "): \"" + gradient.name + "\" ";
  if (!gradient.view) {
    misused(call + "is a buffer and has no gradient");
  }
  if (self.synchronized) {
    misused(call + "was reduced by synchronize() already; step() comes next");
  }
  if (gradient.announced) {
    misused(call + "was announced already in this micro-step");
  }
  self.check_samples_given();
  gradient.announced = true;
  if (self.is_last()) {
    self.or_begin_new_step([&] { self.submit(gradient); });
  }
}

bool GradientReducer::synchronize() {
  Impl& self = *impl_;
  if (self.synchronized) {
    return true;
  }
  self.check_samples_given();
  if (!self.is_last()) {
    return false;
  }
  self.or_begin_new_step([&] {
    self.submit_rest();
    wait_all(self.handles);
  });
  self.handles.clear();
  self.synchronized = true;
  return true;
}

bool GradientReducer::finish_micro_step() {
  Impl& self = *impl_;
  if (!synchronize()) {
    ++self.micro_step;
    self.has_samples = false;
    for (Gradient& gradient : self.gradients) {
      gradient.announced = false;
    }
    return false;
  }
  self.begin_new_step();
  return true;
}

void GradientReducer::end_step() { kolo::end_step(impl_->context); }

bool GradientReducer::may_zero() const {
  if (impl_->in_flight()) {
    misused("DistributedOptimizer: zero_grad() while gradients are being reduced; step() or synchronize() comes first");
  }
  return impl_->micro_step == 0;
}

std::size_t GradientReducer::finished() const {
  if (impl_->synchronized) {
    return static_cast<std::size_t>(std::count_if(impl_->gradients.begin(), impl_->gradients.end(),
                                                  [](const Gradient& g) { return g.view.has_value(); }));
  }
  return static_cast<std::size_t>(
      std::count_if(impl_->handles.begin(), impl_->handles.end(), [](const Handle& handle) { return handle.done(); }));
}

}  // namespace kolo
