// SPDX-License-Identifier: Apache-2.0
//
// One step, from the reducer's side:
//
//     micro-step 1 ... k-1   announcements are noted; gradients add up in the caller's memory
//     micro-step k           each gradient is submitted when it is announced, the rest by synchronize()
//     synchronized           all have arrived; the caller may look, clip; finish_micro_step() lets the optimizer step
//
// Pieces. With `Gets::own_piece` the reduction is a reduce-scatter in place: a rank's piece of a gradient is summed
// where it lies. An average is then divided out of the pieces alone, after the reduction, when the number of ranks that
// had data is known. (Of what travels in 16 bits, or is 16 bits, the reduction divides: sums might not fit. So it does
// by a power of two, which can be undone.)
//
// With `Gets::own_piece_apart` a gradient may lie elsewhere in every step, so its reduction cannot be prepared: it is
// started by name, from the memory of the step into the piece's own.
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

#include "optimizer/compressed_gradient.hpp"
#include "optimizer/elements.hpp"
#include "optimizer/gradient.hpp"
#include "optimizer/gradient_checks.hpp"
#include "optimizer/step_weights.hpp"

namespace kolo {

using optimizer::flat;
using optimizer::Gradient;
using optimizer::misused;
using optimizer::reserve;
using optimizer::StepSums;

struct GradientReducer::Impl {
  const Group group;
  const DistributedOptimizerOptions options;
  const bool in_pieces, apart;
  int mean = 1;  // over how many micro-steps
  std::vector<Gradient> gradients;
  std::vector<Parameter> places;
  Prepared agreement;
  StepSums sums;  // the agreement's memory

  int micro_step = 0;         // of this step, from 0
  bool synchronized = false;  // this step's gradients have arrived

  bool weighted = false;         // this step's micro-steps give their samples
  bool has_samples = false;      // this micro-step has
  bool is_aside = false;         // this one has none, and the earlier ones' sum is set aside
  double samples = 0;            // of this rank, in this step so far
  double unit = 0;               // c: samples x gradient is unit x memory
  bool settled = false;          // what the others do in this step is known
  std::optional<double> weight;  // by which this rank's gradients are multiplied

  std::vector<Handle> handles;  // behind what they write to: while an exception unwinds, they end first
  Handle agreement_handle;      // valid while the sums are under way

  Impl(const Group& ranks, Span<const Parameter> parameters, const DistributedOptimizerOptions& given, Gets gets)
      : group(ranks), options(given), in_pieces(gets != Gets::all), apart(gets == Gets::own_piece_apart) {
    optimizer::check_options(parameters, options);
    check_agreement(group, "DistributedOptimizer(" + options.name + ")", optimizer::entries_of(parameters, options));
    const std::vector<int> priorities = optimizer::priorities_of(parameters, options);
    for (const Parameter& parameter : parameters) {
      gradients.push_back({parameter.name, parameter.gradient, {}, false, {}, priorities[gradients.size()]});
      if (in_pieces && parameter.gradient) {
        gradients.back().piece = piece_of(group, *parameter.gradient);
        if (apart) {
          gradients.back().move_apart();
        }
      }
    }
    if (options.compression == Compression::int8_blocks) {
      compress(parameters);
    }
    prepare(options.accumulation_steps);
    handles.reserve(gradients.size());
    if (gradients.empty()) {
      return;
    }
    // Named after a parameter too, so that optimizers of one name over different parameters stay apart.
    AllreduceOptions sum;
    sum.timeout = options.timeout;
    sum.priority = priorities.back();  // gradients may wait for it
    agreement = reserve(group, options.name, gradients.front().name + " (step)",
                        Call::allreduce(kolo::view(sums.numbers), sum));
  }

  // A step that has begun is finished, for the other ranks may be in it, too. While an exception unwinds nothing is
  // waited for: the handles see to it that nothing is written any more.
  ~Impl() {
    if (std::uncaught_exceptions() > exceptions_at_birth || !in_flight()) {
      return;
    }
    try {
      or_begin_new_step([this] { reduce(); });
    } catch (const std::exception&) {  // there is nobody to tell
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void check_between_steps(const std::string& call) const {
    if (in_flight() || synchronized) {
      misused("DistributedOptimizer: " + call + " in the middle of a step; after step() is the time for it");
    }
  }

  void compress(Span<const Parameter> parameters) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      Gradient& gradient = gradients[i];
      if (gradient.view) {
        gradient.compressed = std::make_unique<optimizer::CompressedGradient>(
            group, options.name + '/' + gradient.name, *gradient.view, !in_pieces, options, gradient.priority);
        places.push_back({"compression/" + gradient.name, piece_of(group, parameters[i].value)});
      }
    }
  }

  void start(Gradient& gradient) {
    gradient.at = handles.size();
    if (gradient.compressed) {
      handles.push_back(gradient.compressed->start(*gradient.view));
      return;
    }
    handles.push_back(apart ? kolo::start(group, options.name + '/' + gradient.name, reduction_of(gradient, mean))
                            : gradient.reduction.start());
  }

  // Prepares every gradient's reduction, for a mean over so many micro-steps.
  void prepare(int micro_steps) {
    mean = micro_steps;
    for (Gradient& gradient : gradients) {
      if (gradient.view && !apart && !gradient.compressed) {
        gradient.reduction = Prepared();  // which gives its name back
        gradient.reduction = reserve(group, options.name, gradient.name, reduction_of(gradient, micro_steps));
      }
    }
  }

  [[nodiscard]] Call reduction_of(const Gradient& gradient, int micro_steps) const {
    const TensorView& view = *gradient.view;
    return in_pieces ? Call::reduce_scatter_into(flat(view, 0, view.elements()), *gradient.piece,
                                                 options_of<ReduceScatterOptions>(gradient, micro_steps))
                     : Call::allreduce(view, options_of<AllreduceOptions>(gradient, micro_steps));
  }

  template <class Options>
  [[nodiscard]] Options options_of(const Gradient& gradient, int micro_steps) const {
    Options reduce;
    reduce.timeout = options.timeout;
    reduce.send_as = options.send_gradients_as;
    reduce.priority = gradient.priority;
    if (options.op == ReduceOp::average && !is_divided_late(gradient, micro_steps)) {
      reduce.op = ReduceOp::average;
      reduce.postscale = 1.0 / micro_steps;
    }
    return reduce;
  }

  // Whether this object can divide the average out of the piece as the reduction would.
  [[nodiscard]] bool can_be_divided(const Gradient& gradient) const {
    return in_pieces && options.op == ReduceOp::average && !options.send_gradients_as &&
           !optimizer::objection_to(*gradient.piece);
  }
  // The average is divided out of the piece, which has only been summed. Not by a power of two: that can be undone, if
  // fewer ranks had data, and so the reduction does it, which saves a pass.
  [[nodiscard]] bool is_divided_late(const Gradient& gradient, int micro_steps) const {
    const auto divisor = static_cast<unsigned>(size(group)) * static_cast<unsigned>(micro_steps);
    return can_be_divided(gradient) && (gradient.compressed || (divisor & (divisor - 1)) != 0);
  }

  // Waits for all gradients that were submitted. Of compressed ones the pieces have arrived then, and are to be summed
  // and, where all ranks get all of them, gathered.
  void finish_reductions(int micro_steps) {
    if (options.compression == Compression::none) {
      wait_all(handles);
      handles.clear();
      return;
    }
    std::vector<Gradient*> submitted(handles.size());
    for_each_view([&](Gradient& gradient) { submitted[*gradient.at] = &gradient; });
    const double divisor = options.op == ReduceOp::average ? static_cast<double>(size(group)) * micro_steps : 1;
    for (std::size_t i = 0; i < handles.size(); ++i) {
      handles[i].wait();
      Gradient& gradient = *submitted[i];
      const TensorView piece = gradient.piece ? *gradient.piece : piece_of(group, *gradient.view);
      gradient.compressed->sum(piece);
      if (in_pieces) continue;
      if (divisor != 1) {
        optimizer::divide(piece, divisor, 1);
      }
      handles[i] = gradient.compressed->start_gather(piece, divisor);
    }
    if (!in_pieces) {
      wait_all(handles);
      for_each_view([](const Gradient& gradient) { gradient.compressed->finish(*gradient.view); });
    }
    handles.clear();
  }

  // Of reduced pieces: an average is over the ranks that had data.
  void finish_pieces(int micro_steps) {
    if (!in_pieces || options.op != ReduceOp::average) {
      return;
    }
    const double ranks = sums.ranks();
    for_each_view([&](const Gradient& gradient) {
      if (is_divided_late(gradient, micro_steps)) {
        optimizer::divide(*gradient.piece, ranks, 1.0 / micro_steps);
      } else if (ranks != size(group) && can_be_divided(gradient)) {
        optimizer::divide(*gradient.piece, ranks / size(group) / micro_steps, 1.0 / micro_steps);
      } else if (ranks != size(group)) {
        const auto what = [&gradient] {
          return "an average without all ranks of " + quoted_name(gradient.name) + ", which";
        };
        optimizer::check_computable("ShardedOptimizer", what, *gradient.piece);
        optimizer::scale(*gradient.piece, size(group) / ranks);
      }
    });
  }

  [[nodiscard]] bool is_last() const { return micro_step + 1 == options.accumulation_steps; }

  // A gradient of this rank's, or what it says of the step, is on its way.
  [[nodiscard]] bool in_flight() const { return !handles.empty() || agreement_handle.valid(); }

  [[nodiscard]] bool has_begun_micro_step() const {
    return has_samples || synchronized || in_flight() ||
           std::any_of(gradients.begin(), gradients.end(), [](const Gradient& gradient) { return gradient.announced; });
  }

  void check_samples_given() const {
    if (weighted && !has_samples) {
      misused("DistributedOptimizer: this step's earlier micro-steps gave their samples; each must, by "
              "begin_micro_step(samples)");
    }
  }

  void check_may_be_weighted() const {
    if (options.op != ReduceOp::average) {
      misused("DistributedOptimizer: samples weigh an average; with op sum they have no meaning");
    }
    if (has_samples) {
      misused("DistributedOptimizer: this micro-step's samples were given already");
    }
    if (synchronized || in_flight()) {
      misused("DistributedOptimizer: a micro-step's samples must be given before its first gradient_ready()");
    }
    if (micro_step > 0 && !weighted) {
      misused("DistributedOptimizer: this step's earlier micro-steps gave no samples; all or none must");
    }
    for (const Gradient& gradient : gradients) {
      if (gradient.view) {
        const auto what = [&gradient] { return "weigh " + quoted_name(gradient.name) + ", which"; };
        optimizer::check_computable("DistributedOptimizer: samples", what, apart ? *gradient.piece : *gradient.view);
      }
    }
  }

  template <class Body>
  void for_each_view(const Body& body) {
    for (Gradient& gradient : gradients) {
      if (gradient.view) {
        body(gradient);
      }
    }
  }

  // Makes room for a micro-step of so many samples in what the earlier ones have added up to.
  void weigh_earlier(double count) {
    if (count == 0) {
      if (unit != 0) {
        for_each_view([](Gradient& gradient) {
          if (gradient.is_placed) {
            optimizer::copy(*gradient.view, gradient.aside);
          } else {
            gradient.aside = Tensor();
          }
        });
        is_aside = true;
      }
      return;
    }
    if (micro_step > 0 && count != unit) {
      for_each_view([&](const Gradient& gradient) {
        if (!gradient.is_placed) {
          return;
        }
        if (unit == 0) {
          optimizer::fill_zero(*gradient.view);  // what micro-steps without samples have left there
        } else {
          optimizer::scale(*gradient.view, unit / count);
        }
      });
    }
    unit = count;
  }

  // Of a micro-step without samples: undoes what it has done to the gradient.
  void put_back(const Gradient& gradient) const {
    if (is_aside && gradient.is_placed) {
      if (gradient.aside.data() == nullptr) {
        optimizer::fill_zero(*gradient.view);  // it had no place before
      } else {
        optimizer::copy_back(gradient.aside, *gradient.view);
      }
    }
  }

  // Says what this rank does in this step, of which it makes so many micro-steps.
  void start_agreement(int micro_steps) {
    if (gradients.empty() || settled || agreement_handle.valid()) {
      return;
    }
    sums = StepSums(samples, weighted, micro_steps);
    agreement_handle = agreement.start();
  }

  // Waits for what the others do, where it is under way.
  void settle() {
    if (!agreement_handle.valid()) {
      return;
    }
    Handle handle = std::move(agreement_handle);
    handle.wait();
    settled = true;
    if (sums.weighted() > 0 && agreed()) {
      weight = unit == 0 ? 0.0 : unit * sums.ranks() * options.accumulation_steps / sums.samples();
    }
  }

  [[nodiscard]] bool agreed() const { return sums.agree(); }

  // Throws what each rank does.
  [[noreturn]] void explain(int micro_steps) const {
    const std::string steps = std::to_string(micro_steps) + (micro_steps == 1 ? " micro-step" : " micro-steps");
    explain(weighted ? "the samples of every micro-step" : "no samples, " + steps);
  }
  [[noreturn]] void explain(const std::string& what) const {
    check_agreement(group, "DistributedOptimizer(" + options.name + "): weights of a step", {what});
    throw Error(ErrorCode::mismatch, "DistributedOptimizer: weights of a step: ranks disagree");
  }

  void submit(Gradient& gradient) {
    gradient.announced = true;
    if (weighted) {
      settle();
    }
    if (!gradient.is_placed) {
      gradient.place_nothing();
    }
    put_back(gradient);
    if (weight && *weight == 0.0) {
      optimizer::fill_zero(*gradient.view);  // not 0 x: there may be no number there
    } else if (weight && *weight != 1.0) {
      optimizer::scale(*gradient.view, *weight);
    }
    start(gradient);
  }

  // Submits what is left, and waits for all of it.
  void reduce() { reduce(micro_step + 1, options.accumulation_steps); }
  // The mean is over so many micro-steps; this rank has made `micro_steps`.
  void reduce(int micro_steps, int divisor) {
    for (auto gradient = gradients.rbegin(); gradient != gradients.rend(); ++gradient) {
      if (gradient->view && !gradient->announced) {
        submit(*gradient);
      }
    }
    start_agreement(micro_steps);
    settle();
    if (!agreed()) {
      drain();
      explain(micro_steps);
    }
    finish_reductions(divisor);
    finish_pieces(divisor);
    synchronized = true;
  }

  // Takes part in a step of the others, with nothing. Whether the optimizer is to step; nothing: nobody has data.
  std::optional<bool> follow() {
    sums = StepSums();
    sums.numbers.fill(0);
    agreement_handle = agreement.start();
    Handle(std::move(agreement_handle)).wait();
    settled = true;
    if (sums.ranks() == 0) {
      return std::nullopt;
    }
    if (!agreed()) {
      for_each_view([this](Gradient& gradient) { submit_nothing(gradient); });
      drain();
      explain("nothing, as it has joined");
    }
    if (sums.empty()) {
      return false;
    }
    const int divisor =
        sums.weighted() > 0 ? options.accumulation_steps : static_cast<int>(sums.micro_steps() / sums.ranks());
    const bool is_other_mean = divisor != options.accumulation_steps;
    if (is_other_mean) {
      prepare(divisor);
    }
    for_each_view([this](Gradient& gradient) { submit_nothing(gradient); });
    finish_reductions(divisor);
    finish_pieces(divisor);
    if (is_other_mean) {
      prepare(options.accumulation_steps);
    }
    return true;
  }

  void submit_nothing(Gradient& gradient) {
    if (gradient.is_placed) {
      optimizer::fill_zero(*gradient.view);
    } else {
      gradient.place_nothing();
    }
    start(gradient);
  }

  // Reduces what the micro-steps so far have added up to; whether there was anything.
  bool reduce_early() {
    start_agreement(micro_step);
    settle();
    if (gradients.empty() ? micro_step == 0 : sums.empty()) {
      return false;
    }
    const bool is_other_mean = !weight && agreed() && options.op == ReduceOp::average && micro_step > 0;
    if (is_other_mean) {
      prepare(micro_step);
    }
    reduce(micro_step, is_other_mean ? micro_step : options.accumulation_steps);
    if (is_other_mean) {
      prepare(options.accumulation_steps);
    }
    return true;
  }

  // Waits until nothing is in flight, whatever becomes of it.
  void drain() noexcept {
    try {
      if (agreement_handle.valid()) {
        Handle(std::move(agreement_handle)).wait();
      }
    } catch (const std::exception&) {  // told already, or of no interest beside what was
    }
    try {
      wait_all(handles);
    } catch (const std::exception&) {
    }
  }

  void begin_new_micro_step() {
    for (Gradient& gradient : gradients) {
      gradient.announced = false;
      gradient.at.reset();
    }
    has_samples = is_aside = false;
  }

  void begin_new_step() {
    begin_new_micro_step();
    handles.clear();
    if (apart) {
      for_each_view([](Gradient& gradient) { gradient.displace(); });
    }
    micro_step = 0;
    synchronized = settled = weighted = false;
    samples = unit = 0;
    sums = StepSums();
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

  const int exceptions_at_birth = std::uncaught_exceptions();
};

TensorView piece_of(const Group& group, const TensorView& tensor) {
  const std::int64_t ranks = size(group);
  const std::int64_t rank = kolo::rank(group);
  const std::int64_t each = tensor.elements() / ranks;
  const std::int64_t larger = tensor.elements() % ranks;
  return flat(tensor, each * rank + std::min(rank, larger), each + (rank < larger ? 1 : 0));
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
  self.weigh_earlier(static_cast<double>(samples));
  self.weighted = self.has_samples = true;
  self.samples += static_cast<double>(samples);
  if (self.is_last()) {
    self.or_begin_new_step([&] { self.start_agreement(self.micro_step + 1); });
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
  self.check_samples_given();
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
  if (!self.apart || index >= self.gradients.size() || !self.gradients[index].view) {
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
  self.check_samples_given();
  if (!self.is_last()) {
    return false;
  }
  self.or_begin_new_step([&] { self.reduce(); });
  return true;
}

bool GradientReducer::finish_micro_step() {
  if (synchronize()) {
    impl_->begin_new_step();
    return true;
  }
  Impl& self = *impl_;
  self.for_each_view([&](const Gradient& gradient) { self.put_back(gradient); });
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
  if (!self.in_pieces || self.micro_step > 0 || self.has_begun_micro_step()) {
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
  std::vector<ConstNamedView> views;
  self.for_each_view([&](const Gradient& gradient) {
    if (gradient.compressed) views.push_back({"compression/" + gradient.name, gradient.compressed->lost()});
  });
  return views;
}

std::vector<NamedView> GradientReducer::begin_load() {
  Impl& self = impl();
  self.check_between_steps("begin_load()");
  std::vector<NamedView> views;
  self.for_each_view([&](const Gradient& gradient) {
    if (gradient.compressed) views.push_back({"compression/" + gradient.name, gradient.compressed->lost_to_load()});
  });
  return views;
}

void GradientReducer::end_load() {
  impl().for_each_view([](const Gradient& gradient) {
    if (gradient.compressed) gradient.compressed->load_lost();
  });
}

Span<const Parameter> GradientReducer::places() const { return impl().places; }

void GradientReducer::end_step() { kolo::end_step(impl().group); }

bool GradientReducer::unscale(double scale) {
  bool is_finite = true;
  impl().for_each_view([&](const Gradient& gradient) {
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
