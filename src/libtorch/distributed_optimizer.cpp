// SPDX-License-Identifier: Apache-2.0
//
// What makes a `torch::optim::Optimizer` distributed: which parameters it steps, under which names, and when.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/lbfgs.h>

#include <kolo/distributed_optimizer.hpp>
#include <kolo/error.hpp>
#include <kolo/libtorch.hpp>
#include <kolo/parameters.hpp>

#include "libtorch/gradients.hpp"
#include "libtorch/optimizer_views.hpp"
#include "libtorch/tensors.hpp"

namespace kolo::libtorch {
namespace {

[[noreturn]] void misused(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, "DistributedOptimizer: " + sentence);
}
[[noreturn]] void unsupported(const std::string& sentence) {
  throw Error(ErrorCode::unsupported, "DistributedOptimizer: " + sentence);
}

const void* identity(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

}  // namespace

struct DistributedOptimizer::Impl {
  const Group ranks;
  torch::optim::Optimizer& optimizer;
  torch::nn::Module* module;  // or none
  NamedTensors given;         // the names, where there is no module, and those given later
  const DistributedOptimizerOptions options;

  std::map<const void*, std::pair<std::string, bool>> known;  // all the optimizer's: name, and whether it is reduced
  std::optional<Gradients> gradients;
  std::optional<kolo::detail::GradientReducer> reducer;  // goes first, for it may write to gradients until then
  OptimizerViews views;
  kolo::detail::ReplicaChecks replicas{ranks, options.name};

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
    gradients.reset();
    known.clear();
    for (const auto& [name, parameter] : parameters) {
      known.emplace(identity(parameter), std::make_pair(name, parameter.requires_grad()));
    }
    gradients.emplace(ranks, trained(),
                      Gradients::Settings{"DistributedOptimizer", options.name, options.accumulation_steps});
    reducer.emplace(ranks, gradients->views(), options);
    gradients->attach(*reducer);
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
        if (!parameter.requires_grad() && found->second.second) {
          misused(quoted_name(found->second.first) +
                  " required a gradient when this was made; rebuild() leaves it out");
        }
      }
    }
  }

  bool step() {
    check_nothing_changed();
    return gradients->finish_micro_step() && apply({});
  }

  bool flush(const std::function<void()>& before_step) {
    check_nothing_changed();
    return gradients->flush() && apply(before_step);
  }

  // The optimizer's parameters that it steps, with their names.
  [[nodiscard]] NamedTensors trained() const {
    NamedTensors list = own_parameters();
    list.erase(std::remove_if(list.begin(), list.end(), [](const auto& one) { return !one.second.requires_grad(); }),
               list.end());
    return list;
  }

  void compare_replicas() {
    std::vector<at::Tensor> copies;
    replicas.compare(ranks, gradients->values(copies));
  }

  // Ends a step whose gradients have been reduced; true.
  bool apply(const std::function<void()>& before_step) {
    if (replicas.is_due_before_step()) compare_replicas();
    if (before_step) before_step();
    views.forget();
    optimizer.step();
    reducer->end_step();
    if (replicas.is_due_after_step()) compare_replicas();
    if (options.broadcast_buffers) libtorch::broadcast_buffers(ranks, *module);
    return true;
  }

  void zero_grad(bool set_to_none) {
    if (!reducer->may_zero()) {
      return;
    }
    gradients->zero(set_to_none);
    for (const auto& group : optimizer.param_groups()) {  // what is left of those that were frozen
      for (const at::Tensor& parameter : group.params()) {
        const auto found = known.find(identity(parameter));
        if (found == known.end() || !found->second.second) {
          parameter.mutable_grad().reset();
        }
      }
    }
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
void DistributedOptimizer::begin_micro_step(std::size_t samples) { impl().gradients->begin_micro_step(samples); }
bool DistributedOptimizer::synchronize() {
  impl().check_nothing_changed();
  return impl().gradients->synchronize();
}
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
DistributedOptimizer::NoSync DistributedOptimizer::no_sync() { return NoSync(impl().gradients->no_sync_depth()); }

void DistributedOptimizer::add_param_group(const torch::optim::OptimizerParamGroup& group, const NamedTensors& names) {
  impl().gradients->check_between_steps("add_param_group()");
  impl().optimizer.add_param_group(group);
  impl().given.insert(impl().given.end(), names.begin(), names.end());
  impl().build();
}

void DistributedOptimizer::rebuild() {
  impl().gradients->check_between_steps("rebuild()");
  impl().build();
}

std::vector<ConstNamedView> DistributedOptimizer::state() const {
  return kolo::detail::joined(impl().views.read(impl_->optimizer, impl_->trained()), impl_->reducer->state());
}
std::vector<NamedView> DistributedOptimizer::begin_load() {
  return kolo::detail::joined(impl().views.begin_load(impl_->optimizer, impl_->trained()),
                              impl_->reducer->begin_load());
}
void DistributedOptimizer::end_load() {
  impl().views.end_load(impl_->optimizer);
  impl_->reducer->end_load();
}
std::vector<kolo::Parameter> DistributedOptimizer::parameters() const { return views(impl().trained()); }
Span<const kolo::Parameter> DistributedOptimizer::places() const { return impl().reducer->places(); }

std::size_t DistributedOptimizer::started() const { return impl().gradients->started(); }
std::size_t DistributedOptimizer::finished() const { return impl().gradients->finished(); }

}  // namespace kolo::libtorch
