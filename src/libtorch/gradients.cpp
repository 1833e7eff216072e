// SPDX-License-Identifier: Apache-2.0
#include "libtorch/gradients.hpp"

#include <utility>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <kolo/error.hpp>
#include <kolo/gradient_arena.hpp>

#include "libtorch/past_cache.hpp"
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
    slots_.push_back(
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

// Gives every slot its gradient: in the order in which a backward pass comes by, last layers first, so that what is
// reduced together lies together.
void Gradients::place_in_arena() {
  const at::NoGradGuard no_grad;
  struct Room {
    std::optional<Device> device;
    std::size_t bytes = 0;
    std::shared_ptr<GradientArena> arena;
  };
  Room here, there;  // on the CPU, and on this rank's device
  for (const Slot& slot : slots_) {
    const TensorView view = memory_view(quoted_name(slot.name), layout_of(slot.parameter));
    Room& room = slot.parameter.is_cpu() ? here : there;
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
  for (std::size_t i = slots_.size(); i-- > 0;) {
    Slot& slot = slots_[i];
    slot.gradient = tensor_in((slot.parameter.is_cpu() ? here : there).arena, layout_of(slot.parameter));
    replaced = replaced || slot.parameter.grad().defined();
    bind(i);
  }
  if (replaced) {
    give_back_memory();
  }
}

std::vector<kolo::Parameter> Gradients::views() {
  std::vector<kolo::Parameter> views;
  for (const Slot& slot : slots_) {
    const TensorView view = view_of(slot);
    const bool has_gaps = !slot.parameter.is_non_overlapping_and_dense();
    views.push_back(
        {slot.name, has_gaps || !slot.parameter.is_cpu() ? view : memory_view(slot.name, slot.parameter), view});
  }
  return views;
}

std::vector<kolo::Parameter> Gradients::values(std::vector<at::Tensor>& copies) {
  std::vector<kolo::Parameter> values;
  for (const Slot& slot : slots_) {
    const bool has_gaps = !slot.parameter.is_non_overlapping_and_dense();
    if (has_gaps) {
      copies.push_back(slot.parameter.detach().contiguous());
    }
    values.push_back({slot.name, memory_view(slot.name, has_gaps ? copies.back() : slot.parameter), view_of(slot)});
  }
  return values;
}

void Gradients::attach(kolo::detail::GradientReducer& reducer) {
  reducer_ = &reducer;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].hooks.emplace(
        slots_[i].parameter, [this, i](const at::Tensor& incoming) { before(i, incoming); }, [this, i] { after(i); });
  }
}

// Of a gradient on a device, with the stream from which the hooks hand it over, whichever the backward pass uses.
TensorView Gradients::view_of(const Slot& slot) {
  const std::string what = quoted_name(slot.name);
  const TensorView view = memory_view(what, settings_.in_arena ? slot.gradient : slot.parameter);
  if (slot.parameter.is_cpu()) {
    return view;
  }
  if (!gate_) {
    gate_.emplace(what, slot.parameter);
  }
  return {view.data(), view.dtype(), view.shape(), view.device(), gate_->stream()};
}

// Makes the gradient the slot's, whatever it was; of none, zeros.
void Gradients::bind(std::size_t index) {
  if (!settings_.in_arena) {
    bind_anywhere(index);
  } else if (!adopt(slots_[index])) {
    zero(slots_[index]);
  }
}

// Tells the reducer where the gradient is, if there is one, and if it is not being reduced.
void Gradients::bind_anywhere(std::size_t index) {
  Slot& slot = slots_[index];
  at::Tensor& current = slot.parameter.mutable_grad();
  if (!current.defined() || slot.started) {
    return;
  }
  if (current.layout() != at::kStrided) {
    unsupported("the gradient of " + quoted_name(slot.name) + " is sparse, which is not supported");
  }
  // Pieces of both must be the same elements, and memory must have the values.
  if (current.strides() != slot.parameter.strides() || current.is_conj() || current.is_neg()) {
    const at::NoGradGuard no_grad;
    current = at::empty_like(slot.parameter).copy_(current);
  }
  reducer_->place(index, memory_view(quoted_name(slot.name), current));
}

void Gradients::bind_all() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    bind(i);
  }
}

// Makes the gradient the slot's, and zeroes it.
void Gradients::zero(Slot& slot) const {
  if (past_cache_ && slot.gradient.is_cpu()) {
    zero_past_cache(slot.gradient);
  } else {
    slot.gradient.zero_();
  }
  slot.parameter.mutable_grad() = slot.gradient;
}

// The same where there is a gradient; else returns false.
bool Gradients::adopt(Slot& slot) const {
  at::Tensor& current = slot.parameter.mutable_grad();
  if (!current.defined()) {
    return false;
  }
  if (is_same(current, slot.gradient)) {
    return true;
  }
  if (current.layout() != at::kStrided) {
    unsupported("the gradient of " + quoted_name(slot.name) + " is sparse, which is not supported");
  }
  const at::NoGradGuard no_grad;
  if (current.data_ptr() != slot.gradient.data_ptr() || current.strides() != slot.gradient.strides()) {
    if (past_cache_ && slot.gradient.is_cpu()) {
      copy_past_cache(slot.gradient, current);
    } else {
      slot.gradient.copy_(current);
    }
  }
  current = slot.gradient;
  return true;
}

// The hooks.
void Gradients::before(std::size_t index, const at::Tensor& incoming) const {
  const std::lock_guard lock(mutex_);
  const Slot& slot = slots_[index];
  if (incoming.defined() && incoming.layout() != at::kStrided) {
    unsupported("the gradient of " + quoted_name(slot.name) + " is sparse, which is not supported");
  }
  if (at::GradMode::is_enabled()) {
    unsupported("a backward pass that is itself differentiated (create_graph) is not supported");
  }
  if (slot.started) {
    misused("a second backward pass has reached " + quoted_name(slot.name) +
            ", which is being reduced already; step() comes first, or accumulate (accumulation_steps, no_sync())");
  }
}

void Gradients::after(std::size_t index) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[index];
  bind(index);
  if (*no_sync_depth_ != 0 || micro_step_ + 1 != settings_.accumulation_steps) {
    return;
  }
  let_pass();
  or_begin_new_step([&] { reducer_->gradient_ready(index); });
  slot.started = true;
  if (!settings_.in_arena) {
    slot.gradient = std::move(slot.parameter.mutable_grad());
    being_reduced_.push_back(index);
    free_what_is_reduced();
  }
}

void Gradients::free_what_is_reduced() {
  while (!being_reduced_.empty() && reducer_->is_free(being_reduced_.front())) {
    slots_[being_reduced_.front()].gradient.reset();
    being_reduced_.pop_front();
  }
}

void Gradients::release() {
  if (settings_.in_arena) {
    return;
  }
  being_reduced_.clear();
  for (Slot& slot : slots_) {
    slot.gradient.reset();
    slot.parameter.mutable_grad().reset();
  }
}

void Gradients::let_pass() {
  if (gate_) {
    gate_->let_pass();
  }
}

void Gradients::mark_all_changed() {
  for (Slot& slot : slots_) {
    if (slot.gradient.defined()) {
      mark_changed(slot.gradient);
    }
  }
}

void Gradients::begin_new_step() {
  micro_step_ = 0;
  for (Slot& slot : slots_) {
    slot.started = false;
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
  for (const Slot& slot : slots_) {
    const at::Tensor& is = slot.parameter;
    if (is.dtype() != slot.options.dtype() || is.device() != slot.options.device() || is.sizes() != slot.sizes) {
      misused(quoted_name(slot.name) + " was " + slot.was + " when this was made and is " + describe(is) +
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
    for (Slot& slot : slots_) {
      slot.started = true;
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
  for (Slot& slot : slots_) {
    if (set_to_none || !settings_.in_arena) {
      slot.parameter.mutable_grad().reset();
    } else {
      zero(slot);
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
  return count_started();
}

std::size_t Gradients::finished() const {
  const std::lock_guard lock(mutex_);
  return reducer_->finished();
}

std::size_t Gradients::count_started() const {
  std::size_t count = 0;
  for (const Slot& slot : slots_) {
    count += slot.started ? 1 : 0;
  }
  return count;
}

}  // namespace kolo::libtorch
