// SPDX-License-Identifier: Apache-2.0
//
// LibTorch's side of a distributed step; when which gradient is reduced, and with what weight, is `GradientReducer`'s.
//
// Where gradients live. Each is a tensor made once, of memory that Kolo reduces in place, and is `parameter.grad()`
// from then on: autograd adds to it in place (AccumulateGrad does so when a gradient is defined and no graph is
// recorded). Where the program has reset or replaced it, autograd leaves another tensor there, whose contents are
// copied in, and which is dropped, as the pass goes on: `adopt`. Zeroing and copying are passes over all gradients, and
// what a step costs beside the reduction; libtorch/past_cache.hpp.
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <torch/optim/lbfgs.h>

#include <kolo/distributed_optimizer.hpp>
#include <kolo/error.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/libtorch.hpp>
#include <kolo/parameters.hpp>

#include "libtorch/devices.hpp"
#include "libtorch/gradient_hooks.hpp"
#include "libtorch/past_cache.hpp"
#include "libtorch/tensors.hpp"

namespace kolo::libtorch {
namespace {

[[noreturn]] void misused(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, "DistributedOptimizer: " + sentence);
}
[[noreturn]] void unsupported(const std::string& sentence) {
  throw Error(ErrorCode::unsupported, "DistributedOptimizer: " + sentence);
}

// A parameter that is reduced.
struct Slot {
  std::string name;
  at::Tensor parameter;
  at::Tensor gradient;  // whose memory is reduced
  std::optional<GradientHooks> hooks;
  bool started = false;  // in this step
};

const void* identity(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

kolo::DistributedOptimizerOptions reducer_options(const DistributedOptimizerOptions& options) {
  kolo::DistributedOptimizerOptions result;
  result.op = options.op;
  result.accumulation_steps = options.accumulation_steps;
  result.name = options.name;
  result.timeout = options.timeout;
  result.send_gradients_as = options.send_gradients_as;
  result.first_layers_first = options.first_layers_first;
  return result;
}

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

}  // namespace

struct DistributedOptimizer::Impl {
  const Group ranks;
  torch::optim::Optimizer& optimizer;
  torch::nn::Module* module;  // or none
  NamedTensors given;         // the names, where there is no module, and those given later
  const DistributedOptimizerOptions options;

  // Autograd runs the hooks of CPU tensors on the thread that called backward(), those of a device's on its own.
  mutable std::mutex mutex;
  std::vector<Slot> slots;
  std::map<const void*, std::pair<std::string, bool>> known;  // all the optimizer's: name, and whether it is reduced
  std::optional<Gate> gate;                                   // where there are gradients on a device
  std::optional<GradientReducer> reducer;
  bool past_cache = false;  // whether gradients in CPU memory are written past the cache
  int micro_step = 0;
  const std::shared_ptr<int> no_sync_depth = std::make_shared<int>(0);  // a scope may outlive this

  Impl(const Group& owner, torch::optim::Optimizer& wrapped, torch::nn::Module* model, NamedTensors names,
       const DistributedOptimizerOptions& settings)
      : ranks(owner), optimizer(wrapped), module(model), given(std::move(names)), options(settings) {
    if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr) {
      unsupported("LBFGS evaluates its closure several times a step, which is not supported");
    }
    if (options.broadcast_buffers && module == nullptr) {
      misused("broadcast_buffers needs the module; it was given a list of parameters");
    }
    build();
  }

  // All names that there are, each tensor once.
  [[nodiscard]] NamedTensors all_names() const {
    NamedTensors names = module != nullptr ? libtorch::named_parameters(*module) : NamedTensors();
    names.insert(names.end(), given.begin(), given.end());
    return names;
  }

  // The optimizer's parameters, in the order of names.
  [[nodiscard]] NamedTensors own_parameters() const {
    std::set<const void*> wanted;
    for (const auto& group : optimizer.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        wanted.insert(identity(parameter));
      }
    }
    NamedTensors found;
    for (auto& [name, tensor] : all_names()) {
      if (wanted.erase(identity(tensor)) != 0) {
        found.emplace_back(std::move(name), std::move(tensor));
      }
    }
    if (!wanted.empty()) {
      tell_nameless(wanted);
    }
    return found;
  }

  // Of the parameters that no name was found for, tells the first.
  [[noreturn]] void tell_nameless(const std::set<const void*>& nameless) const {
    std::string which;
    const auto& groups = optimizer.param_groups();
    for (std::size_t i = 0; i < groups.size() && which.empty(); ++i) {
      for (std::size_t j = 0; j < groups[i].params().size() && which.empty(); ++j) {
        const at::Tensor& parameter = groups[i].params()[j];
        if (nameless.count(identity(parameter)) != 0) {
          which =
              "parameter " + std::to_string(j) + " of group " + std::to_string(i) + " (" + describe(parameter) + ')';
        }
      }
    }
    misused("the optimizer steps " + which + ", which has no name in the " + (module != nullptr ? "module" : "list") +
            "; it would not be reduced");
  }

  void check_agreement_about(const NamedTensors& parameters) const {
    std::vector<std::string> entries{"op " + std::string(to_string(options.op)),
                                     "accumulation_steps " + std::to_string(options.accumulation_steps),
                                     std::string("broadcast_buffers ") + (options.broadcast_buffers ? "on" : "off")};
    for (const auto& [name, parameter] : parameters) {
      entries.push_back(name + ' ' + describe(parameter) + (parameter.requires_grad() ? "" : " without gradient"));
    }
    check_agreement(ranks, "DistributedOptimizer(" + options.name + ")", entries);
  }

  void build() {
    const NamedTensors parameters = own_parameters();
    check_agreement_about(parameters);
    reducer.reset();  // its names become free
    slots.clear();
    known.clear();
    for (const auto& [name, parameter] : parameters) {
      known.emplace(identity(parameter), std::make_pair(name, parameter.requires_grad()));
      if (parameter.requires_grad()) {
        check_trainable(name, parameter);
        slots.push_back({name, parameter, {}, {}, false});
      }
    }
    place_gradients();
    std::vector<kolo::Parameter> views;
    for (const Slot& slot : slots) {
      const TensorView view = view_of(slot);
      views.push_back({slot.name, view, view});
    }
    reducer.emplace(ranks, views, reducer_options(options));
    for (std::size_t i = 0; i < slots.size(); ++i) {
      slots[i].hooks.emplace(
          slots[i].parameter, [this, i](const at::Tensor& incoming) { before(i, incoming); }, [this, i] { after(i); });
    }
    micro_step = 0;
  }

  // Of a gradient on a device, with the stream from which the hooks hand it over, whichever the backward pass uses.
  TensorView view_of(const Slot& slot) {
    const std::string what = quoted_name(slot.name);
    const TensorView view = memory_view(what, slot.gradient);
    if (slot.gradient.is_cpu()) {
      return view;
    }
    if (!gate) {
      gate.emplace(what, slot.gradient);
    }
    return {view.data(), view.dtype(), view.shape(), view.device(), gate->stream()};
  }

  static void check_trainable(const std::string& name, const at::Tensor& parameter) {
    if (!is_floating_point(dtype_of(quoted_name(name), parameter)) || !parameter.is_leaf()) {
      misused(quoted_name(name) + " is no floating-point leaf tensor");
    }
  }

  // Gives every slot its gradient: in the order in which a backward pass comes by, last layers first, so that what is
  // reduced together lies together.
  void place_gradients() {
    const at::NoGradGuard no_grad;
    struct Room {
      std::optional<Device> device;
      std::size_t bytes = 0;
      std::shared_ptr<GradientArena> arena;
    };
    Room here, there;  // on the CPU, and on this rank's device
    for (const Slot& slot : slots) {
      const TensorView view = memory_view(quoted_name(slot.name), layout_of(slot.parameter));
      Room& room = slot.parameter.is_cpu() ? here : there;
      room.device = view.device();
      room.bytes += GradientArena::room_for(view.dtype(), view.shape());
    }
    past_cache = exceeds_cache(here.bytes);
    for (Room* room : {&here, &there}) {
      if (room->device) {
        room->arena = std::make_shared<GradientArena>(ranks, room->bytes, *room->device,
                                                      "DistributedOptimizer(" + options.name + ")");
      }
    }
    bool replaced = false;
    for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot) {
      slot->gradient = tensor_in((slot->parameter.is_cpu() ? here : there).arena, layout_of(slot->parameter));
      replaced = replaced || slot->parameter.grad().defined();
      bind(*slot);
    }
    if (replaced) {
      give_back_memory();
    }
  }

  // Makes the gradient the slot's, whatever it was; of none, zeros.
  void bind(Slot& slot) const {
    if (!adopt(slot)) {
      zero(slot);
    }
  }

  // Makes the gradient the slot's, and zeroes it.
  void zero(Slot& slot) const {
    if (past_cache && slot.gradient.is_cpu()) {
      zero_past_cache(slot.gradient);
    } else {
      slot.gradient.zero_();
    }
    slot.parameter.mutable_grad() = slot.gradient;
  }

  // The same where there is a gradient; else returns false.
  bool adopt(Slot& slot) const {
    at::Tensor& current = slot.parameter.mutable_grad();
    if (!current.defined()) {
      return false;
    }
    if (identity(current) == identity(slot.gradient)) {
      return true;
    }
    if (current.layout() != at::kStrided) {
      unsupported("the gradient of " + quoted_name(slot.name) + " is sparse, which is not supported");
    }
    const at::NoGradGuard no_grad;
    if (current.data_ptr() != slot.gradient.data_ptr() || current.strides() != slot.gradient.strides()) {
      if (past_cache && slot.gradient.is_cpu()) {
        copy_past_cache(slot.gradient, current);
      } else {
        slot.gradient.copy_(current);
      }
    }
    current = slot.gradient;
    return true;
  }

  [[nodiscard]] bool is_last() const { return micro_step + 1 == options.accumulation_steps; }

  // The hooks.
  void before(std::size_t index, const at::Tensor& incoming) const {
    const std::lock_guard lock(mutex);
    const Slot& slot = slots[index];
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

  void after(std::size_t index) {
    const std::lock_guard lock(mutex);
    Slot& slot = slots[index];
    bind(slot);
    if (*no_sync_depth == 0 && is_last()) {
      let_pass();
      or_begin_new_step([&] { reducer->gradient_ready(index); });
      slot.started = true;
    }
  }

  void let_pass() {
    if (gate) {
      gate->let_pass();
    }
  }

  void begin_new_step() {
    micro_step = 0;
    for (Slot& slot : slots) {
      slot.started = false;
    }
  }

  template <class Body>
  void or_begin_new_step(const Body& body) {
    try {
      body();
    } catch (...) {
      begin_new_step();
      throw;
    }
  }

  // Nothing may be stepped that was not reduced.
  void check_nothing_changed() const {
    for (const auto& group : optimizer.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        const auto found = known.find(identity(parameter));
        if (found == known.end()) {
          misused("the optimizer has a parameter (" + describe(parameter) +
                  ") that was added after this was made; add_param_group() or rebuild() takes it in");
        }
        if (parameter.requires_grad() && !found->second.second) {
          misused(quoted_name(found->second.first) +
                  " did not require a gradient when this was made; rebuild() takes it in");
        }
      }
    }
    for (const Slot& slot : slots) {
      if (slot.parameter.dtype() != slot.gradient.dtype() || slot.parameter.device() != slot.gradient.device() ||
          slot.parameter.sizes() != slot.gradient.sizes()) {
        misused(quoted_name(slot.name) + " was " + describe(slot.gradient) + " when this was made and is " +
                describe(slot.parameter) + "; rebuild() takes it in");
      }
    }
  }

  void check_may_end() const {
    if (*no_sync_depth != 0) {
      misused("step(), synchronize() and flush() while a no_sync() scope is open");
    }
    check_nothing_changed();
  }

  bool synchronize() {
    check_may_end();
    for (Slot& slot : slots) {
      bind(slot);
    }
    let_pass();
    bool reduced = false;
    or_begin_new_step([&] { reduced = reducer->synchronize(); });
    if (reduced) {
      for (Slot& slot : slots) {
        slot.started = true;
        mark_changed(slot.gradient);
      }
    }
    return reduced;
  }

  bool step() {
    if (!synchronize()) {
      (void)reducer->finish_micro_step();
      ++micro_step;
      return false;
    }
    (void)reducer->finish_micro_step();
    begin_new_step();
    update();
    return true;
  }

  void update() {
    optimizer.step();
    reducer->end_step();
    if (options.broadcast_buffers) {
      libtorch::broadcast_buffers(ranks, *module);
    }
  }

  bool flush(const std::function<void()>& before_step) {
    check_may_end();
    if (started() != 0) {
      misused("flush() while gradients are being reduced; step() comes first");
    }
    for (Slot& slot : slots) {
      bind(slot);
    }
    let_pass();
    bool reduced = false;
    or_begin_new_step([&] { reduced = reducer->flush(); });
    begin_new_step();
    if (!reduced) {
      return false;
    }
    for (Slot& slot : slots) {
      mark_changed(slot.gradient);
    }
    if (before_step) {
      before_step();
    }
    update();
    return true;
  }

  void zero_grad(bool set_to_none) {
    if (!reducer->may_zero()) {
      return;
    }
    const at::NoGradGuard no_grad;
    for (Slot& slot : slots) {
      if (set_to_none) {
        slot.parameter.mutable_grad().reset();
      } else {
        zero(slot);
      }
    }
    for (const auto& group : optimizer.param_groups()) {  // what is left of those that were frozen
      for (const at::Tensor& parameter : group.params()) {
        const auto found = known.find(identity(parameter));
        if (found == known.end() || !found->second.second) {
          parameter.mutable_grad().reset();
        }
      }
    }
  }

  void check_between_steps(const std::string& call) const {
    if (micro_step != 0 || started() != 0 || *no_sync_depth != 0) {
      misused(call + " in the middle of a step; after step() is the time for it");
    }
  }

  [[nodiscard]] std::size_t started() const {
    std::size_t count = 0;
    for (const Slot& slot : slots) {
      count += slot.started ? 1 : 0;
    }
    return count;
  }
};

DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& optimizer, torch::nn::Module& module,
                                           const DistributedOptimizerOptions& options)
    : DistributedOptimizer(current_context(), optimizer, module, options) {}
DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& optimizer, NamedTensors parameters,
                                           const DistributedOptimizerOptions& options)
    : DistributedOptimizer(current_context(), optimizer, std::move(parameters), options) {}
DistributedOptimizer::DistributedOptimizer(const Group& group, torch::optim::Optimizer& optimizer,
                                           torch::nn::Module& module, const DistributedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(group, optimizer, &module, NamedTensors(), options)) {}
DistributedOptimizer::DistributedOptimizer(const Group& group, torch::optim::Optimizer& optimizer,
                                           NamedTensors parameters, const DistributedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(group, optimizer, nullptr, std::move(parameters), options)) {}
DistributedOptimizer::DistributedOptimizer(DistributedOptimizer&&) noexcept = default;
DistributedOptimizer& DistributedOptimizer::operator=(DistributedOptimizer&&) noexcept = default;
DistributedOptimizer::~DistributedOptimizer() = default;

DistributedOptimizer::Impl& DistributedOptimizer::impl() const {
  if (!impl_) {
    misused("this one was moved from");
  }
  return *impl_;
}

void DistributedOptimizer::zero_grad(bool set_to_none) { impl().zero_grad(set_to_none); }
void DistributedOptimizer::begin_micro_step(std::size_t samples) {
  Impl& self = impl();
  self.or_begin_new_step([&] { self.reducer->begin_micro_step(samples); });
}
bool DistributedOptimizer::synchronize() { return impl().synchronize(); }
bool DistributedOptimizer::step() { return impl().step(); }
bool DistributedOptimizer::flush(const std::function<void()>& before_step) { return impl().flush(before_step); }

at::Tensor DistributedOptimizer::step(const torch::optim::Optimizer::LossClosure& closure) {
  at::Tensor loss;
  {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  step();
  return loss;
}

DistributedOptimizer::NoSync::NoSync(std::shared_ptr<int> depth) noexcept : depth_(std::move(depth)) { ++*depth_; }
DistributedOptimizer::NoSync::NoSync(NoSync&&) noexcept = default;
DistributedOptimizer::NoSync::~NoSync() {
  if (depth_) {
    --*depth_;
  }
}
DistributedOptimizer::NoSync DistributedOptimizer::no_sync() { return NoSync(impl().no_sync_depth); }

void DistributedOptimizer::add_param_group(const torch::optim::OptimizerParamGroup& group, const NamedTensors& names) {
  impl().check_between_steps("add_param_group()");
  impl().optimizer.add_param_group(group);
  impl().given.insert(impl().given.end(), names.begin(), names.end());
  impl().build();
}

void DistributedOptimizer::rebuild() {
  impl().check_between_steps("rebuild()");
  impl().build();
}

std::size_t DistributedOptimizer::started() const {
  const std::lock_guard lock(impl().mutex);
  return impl().started();
}

std::size_t DistributedOptimizer::finished() const {
  const std::lock_guard lock(impl().mutex);
  return impl().reducer->finished();
}

}  // namespace kolo::libtorch
