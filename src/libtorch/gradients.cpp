// SPDX-License-Identifier: Apache-2.0
#include "libtorch/gradients.hpp"

#include <algorithm>
#include <utility>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <kolo/error.hpp>
#include <kolo/gradient_arena.hpp>

#include "libtorch/streaming_stores.hpp"
#include "libtorch/tensors.hpp"

namespace kolo::libtorch {
namespace {

// What a gradient's layout is: the parameter's, if that has no gaps; else that of a contiguous tensor.
at::Tensor layout_of(const at::Tensor& parameter) {
  return parameter.is_non_overlapping_and_dense() ? parameter.detach() : parameter.detach().contiguous();
}

// A tensor of the same layout in the arena, which lives as long as one of its tensors.
at::Tensor tensor_in(const std::shared_ptr<GradientArena>& arena, const at::Tensor& layout) {
  const TensorView view = memory_view("a gradient", layout);
  const TensorView memory = arena->allocate(view.dtype(), view.shape());
  return at::from_blob(
      memory.data(), layout.sizes(), layout.strides(), [arena](void*) {}, layout.options());
}

// What the program's own gradients lay in is free now, and would stay the process's beside the arena: glibc gives back
// by itself only what lies at the heap's end.
void give_back_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

bool is_same(const at::Tensor& a, const at::Tensor& b) { return a.unsafeGetTensorImpl() == b.unsafeGetTensorImpl(); }

}  // namespace

Gradients::Gradients(const Group& ranks, const NamedTensors& parameters, Settings settings)
    : ranks_(ranks), settings_(std::move(settings)) {
  for (const auto& [name, parameter] : parameters) {
    check_trainable(name, parameter);
    tracked_.push_back(
        {name, parameter, {}, parameter.sizes().vec(), parameter.options(), describe(layout_of(parameter))});
  }
  if (settings_.in_arena) {
    place_in_arena();
  }
}

void Gradients::misused(const std::string& sentence) const {
  throw Error(ErrorCode::invalid_argument, settings_.caller + ": " + sentence);
}
void Gradients::unsupported(const std::string& sentence) const {
  throw Error(ErrorCode::unsupported, settings_.caller + ": " + sentence);
}

void Gradients::check_trainable(const std::string& name, const at::Tensor& parameter) const {
  if (!is_floating_point(dtype_of(quoted_name(name), parameter)) || !parameter.is_leaf()) {
    misused(quoted_name(name) + " is no floating-point leaf tensor");
  }
}

void Gradients::check_dense(const Tracked& tracked, const at::Tensor& gradient) const {
  if (gradient.layout() != at::kStrided) {
    unsupported("the gradient of " + quoted_name(tracked.name) + " is sparse, which is not supported");
  }
}

// Gives every parameter its gradient: in the order in which a backward pass comes by, last layers first, so that what
// is reduced together lies together.
void Gradients::place_in_arena() {
  const at::NoGradGuard no_grad;
  struct Room {
    std::optional<Device> device;
    std::size_t bytes = 0;
    std::shared_ptr<GradientArena> arena;
  };
  Room here, there;  // on the CPU, and on this rank's device
  for (const Tracked& tracked : tracked_) {
    const TensorView view = memory_view(quoted_name(tracked.name), layout_of(tracked.parameter));
    Room& room = tracked.parameter.is_cpu() ? here : there;
    room.device = view.device();
    room.bytes += GradientArena::room_for(view.dtype(), view.shape());
  }
  past_cache_ = exceeds_cache(here.bytes);
  for (Room* room : {&here, &there}) {
    if (room->device) {
      room->arena = std::make_shared<GradientArena>(ranks_, room->bytes, *room->device,
                                                    settings_.caller + "(" + settings_.name + ")");
    }
  }
  bool replaced = false;
  for (std::size_t i = tracked_.size(); i-- > 0;) {
    Tracked& tracked = tracked_[i];
    tracked.gradient = tensor_in((tracked.parameter.is_cpu() ? here : there).arena, layout_of(tracked.parameter));
    replaced = replaced || tracked.parameter.grad().defined();
    bind(i);
  }
  if (replaced) {
    give_back_memory();
  }
}

std::vector<kolo::Parameter> Gradients::views() {
  std::vector<kolo::Parameter> views;
  for (const Tracked& tracked : tracked_) {
    const TensorView view = view_of(tracked);
    const bool has_gaps = !tracked.parameter.is_non_overlapping_and_dense();
    views.push_back({tracked.name,
                     has_gaps || !tracked.parameter.is_cpu() ? view : memory_view(tracked.name, tracked.parameter),
                     view});
  }
  return views;
}

std::vector<kolo::Parameter> Gradients::values(std::vector<at::Tensor>& copies) {
  std::vector<kolo::Parameter> values;
  for (const Tracked& tracked : tracked_) {
    const bool has_gaps = !tracked.parameter.is_non_overlapping_and_dense();
    if (has_gaps) {
      copies.push_back(tracked.parameter.detach().contiguous());
    }
    values.push_back(
        {tracked.name, memory_view(tracked.name, has_gaps ? copies.back() : tracked.parameter), view_of(tracked)});
  }
  return values;
}

void Gradients::attach(kolo::detail::GradientReducer& reducer) {
  reducer_ = &reducer;
  for (std::size_t i = 0; i < tracked_.size(); ++i) {
    tracked_[i].hooks.emplace(
        tracked_[i].parameter, [this, i](const at::Tensor& incoming) { before(i, incoming); }, [this, i] { after(i); });
  }
}

// Of a gradient on a device, with the stream from which the hooks hand it over, whichever the backward pass uses.
TensorView Gradients::view_of(const Tracked& tracked) {
  const std::string what = quoted_name(tracked.name);
  const TensorView view = memory_view(what, settings_.in_arena ? tracked.gradient : tracked.parameter);
  if (tracked.parameter.is_cpu()) {
    return view;
  }
  if (!gate_) {
    gate_.emplace(what, tracked.parameter);
  }
  return {view.data(), view.dtype(), view.shape(), view.device(), gate_->stream()};
}

// Makes the gradient the parameter's, whatever it was; of none, zeros.
void Gradients::bind(std::size_t index) {
  if (!settings_.in_arena) {
    bind_anywhere(index);
  } else if (!adopt(tracked_[index])) {
    zero(tracked_[index]);
  }
}

// Tells the reducer where the gradient is, if there is one, and if it is not being reduced.
void Gradients::bind_anywhere(std::size_t index) {
  Tracked& tracked = tracked_[index];
  at::Tensor& current = tracked.parameter.mutable_grad();
  if (!current.defined() || tracked.started) {
    return;
  }
  check_dense(tracked, current);
  // Pieces of both must be the same elements, and memory must have the values.
  if (current.strides() != tracked.parameter.strides() || current.is_conj() || current.is_neg()) {
    const at::NoGradGuard no_grad;
    current = at::empty_like(tracked.parameter).copy_(current);
  }
  reducer_->place(index, memory_view(quoted_name(tracked.name), current));
}

void Gradients::bind_all() {
  for (std::size_t i = 0; i < tracked_.size(); ++i) {
    bind(i);
  }
}

// Makes the gradient the parameter's, and zeroes it.
void Gradients::zero(Tracked& tracked) const {
  if (past_cache_ && tracked.gradient.is_cpu()) {
    zero_past_cache(tracked.gradient);
  } else {
    tracked.gradient.zero_();
  }
  tracked.parameter.mutable_grad() = tracked.gradient;
}

// The same where there is a gradient; else returns false.
bool Gradients::adopt(Tracked& tracked) const {
  at::Tensor& current = tracked.parameter.mutable_grad();
  if (!current.defined()) {
    return false;
  }
  if (is_same(current, tracked.gradient)) {
    return true;
  }
  check_dense(tracked, current);
  const at::NoGradGuard no_grad;
  if (current.data_ptr() != tracked.gradient.data_ptr() || current.strides() != tracked.gradient.strides()) {
    if (past_cache_ && tracked.gradient.is_cpu()) {
      copy_past_cache(tracked.gradient, current);
    } else {
      tracked.gradient.copy_(current);
    }
  }
  current = tracked.gradient;
  return true;
}

// The hooks.
void Gradients::before(std::size_t index, const at::Tensor& incoming) const {
  const std::lock_guard lock(mutex_);
  const Tracked& tracked = tracked_[index];
  if (incoming.defined()) check_dense(tracked, incoming);
  if (at::GradMode::is_enabled()) {
    unsupported("a backward pass that is itself differentiated (create_graph) is not supported");
  }
  if (tracked.started) {
    misused("a second backward pass has reached " + quoted_name(tracked.name) +
            ", which is being reduced already; step() comes first, or accumulate (accumulation_steps, no_sync())");
  }
}

void Gradients::after(std::size_t index) {
  const std::lock_guard lock(mutex_);
  Tracked& tracked = tracked_[index];
  bind(index);
  if (*no_sync_depth_ != 0 || micro_step_ + 1 != settings_.accumulation_steps) {
    return;
  }
  let_pass();
  or_begin_new_step([&] { reducer_->gradient_ready(index); });
  tracked.started = true;
  if (!settings_.in_arena) {
    tracked.gradient = std::move(tracked.parameter.mutable_grad());
    being_reduced_.push_back(index);
    free_what_is_reduced();
  }
}

void Gradients::free_what_is_reduced() {
  while (!being_reduced_.empty() && reducer_->is_free(being_reduced_.front())) {
    tracked_[being_reduced_.front()].gradient.reset();
    being_reduced_.pop_front();
  }
}

void Gradients::release() {
  if (settings_.in_arena) {
    return;
  }
  being_reduced_.clear();
  for (Tracked& tracked : tracked_) {
    tracked.gradient.reset();
    tracked.parameter.mutable_grad().reset();
  }
}

void Gradients::let_pass() {
  if (gate_) {
    gate_->let_pass();
  }
}

void Gradients::mark_all_changed() {
  for (Tracked& tracked : tracked_) {
    if (tracked.gradient.defined()) {
      mark_changed(tracked.gradient);
    }
  }
}

void Gradients::begin_new_step() {
  micro_step_ = 0;
  for (Tracked& tracked : tracked_) {
    tracked.started = false;
  }
}

template <class Body>
void Gradients::or_begin_new_step(const Body& body) {
  try {
    body();
  } catch (...) {
    begin_new_step();
    throw;
  }
}

void Gradients::check_may_end() const {
  if (*no_sync_depth_ != 0) {
    misused("step(), synchronize() and flush() while a no_sync() scope is open");
  }
  for (const Tracked& tracked : tracked_) {
    const at::Tensor& is = tracked.parameter;
    if (is.dtype() != tracked.options.dtype() || is.device() != tracked.options.device() ||
        is.sizes() != tracked.sizes) {
      misused(quoted_name(tracked.name) + " was " + tracked.was + " when this was made and is " + describe(is) +
              "; rebuild() takes it in");
    }
  }
}

bool Gradients::synchronize() {
  check_may_end();
  bind_all();
  let_pass();
  bool reduced = false;
  or_begin_new_step([&] { reduced = reducer_->synchronize(); });
  if (reduced) {
    for (Tracked& tracked : tracked_) {
      tracked.started = true;
    }
    mark_all_changed();
  }
  return reduced;
}

bool Gradients::finish_micro_step() {
  const bool is_last = synchronize();
  (void)reducer_->finish_micro_step();
  if (is_last) {
    begin_new_step();
  } else {
    ++micro_step_;
  }
  return is_last;
}

bool Gradients::flush() {
  check_may_end();
  if (started() != 0) {
    misused("flush() while gradients are being reduced; step() comes first");
  }
  bind_all();
  let_pass();
  bool reduced = false;
  or_begin_new_step([&] { reduced = reducer_->flush(); });
  begin_new_step();
  if (reduced) {
    mark_all_changed();
  }
  return reduced;
}

void Gradients::begin_micro_step(std::size_t samples) {
  or_begin_new_step([&] { reducer_->begin_micro_step(samples); });
}

void Gradients::zero(bool set_to_none) {
  const at::NoGradGuard no_grad;
  for (Tracked& tracked : tracked_) {
    if (set_to_none || !settings_.in_arena) {
      tracked.parameter.mutable_grad().reset();
    } else {
      zero(tracked);
    }
  }
}

void Gradients::check_between_steps(const std::string& call) const {
  if (micro_step_ != 0 || started() != 0 || *no_sync_depth_ != 0) {
    misused(call + " in the middle of a step; after step() is the time for it");
  }
}

std::size_t Gradients::started() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(tracked_.begin(), tracked_.end(), [](const Tracked& tracked) { return tracked.started; }));
}

std::size_t Gradients::finished() const {
  const std::lock_guard lock(mutex_);
  return reducer_->finished();
}

}  // namespace kolo::libtorch
