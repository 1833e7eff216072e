// SPDX-License-Identifier: Apache-2.0
//
// LibTorch's optimizers over pieces: `ParameterShards` decides what a rank has, `Gradients` brings the gradients, and
// the optimizer gets tensors that are views of the pieces' memory.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/from_blob.h>

#include <kolo/error.hpp>
#include <kolo/libtorch.hpp>
#include <kolo/sharded_optimizer.hpp>

#include "libtorch/gradients.hpp"
#include "libtorch/optimizer_views.hpp"
#include "libtorch/tensors.hpp"

namespace kolo::libtorch {
namespace {

[[noreturn]] void refuse(ErrorCode code, const std::string& sentence) {
  throw Error(code, "ShardedOptimizer: " + sentence);
}

at::Tensor tensor_of(const TensorView& view) {
  const std::vector<std::int64_t> sizes(view.shape().begin(), view.shape().end());
  return at::from_blob(view.data(), sizes, at::TensorOptions(scalar_type_of(view.dtype())));
}

// Those that require a gradient, or those that do not.
NamedTensors parameters_that(bool require_gradients, const NamedTensors& parameters) {
  NamedTensors list;
  for (const auto& one : parameters) {
    if (one.second.requires_grad() == require_gradients) list.push_back(one);
  }
  return list;
}

NamedTensors trained(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (tensor.is_complex()) refuse(ErrorCode::unsupported, quoted_name(name) + " is complex, which has no pieces");
  }
  return parameters_that(true, parameters);
}

kolo::ShardedOptimizerOptions shard_options(const ShardedOptimizerOptions& options) {
  kolo::ShardedOptimizerOptions result;
  result.reduction = options.reduction;
  result.stage = options.stage;
  result.max_norm = options.max_norm;
  if (options.master_weights) {
    result.cast = [](const TensorView& from, const TensorView& to) { tensor_of(to).copy_(tensor_of(from)); };
  }
  return result;
}

}  // namespace

struct ShardedOptimizer::Impl {
  const Group ranks;
  torch::nn::Module* const module;  // or none
  const ShardedOptimizerOptions options;
  const NamedTensors parameters, frozen;
  const std::vector<void*> places;  // of the values
  Gradients gradients;
  kolo::detail::ParameterShards shards;  // goes first, for it may write to gradients until then
  NamedTensors pieces;
  std::vector<at::Tensor> piece_gradients;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  OptimizerViews views;

  Impl(const Group& group, torch::nn::Module* model, const NamedTensors& all, const Make& make,
       const ShardedOptimizerOptions& given)
      : ranks(group), module(model), options(given), parameters(trained(all)), frozen(parameters_that(false, all)),
        places(places_of(parameters)), gradients(ranks, parameters,
                                                 {"ShardedOptimizer", options.reduction.name,
                                                  options.reduction.accumulation_steps, options.stage < 2}),
        shards(ranks, list(), shard_options(options)) {
    if (options.reduction.broadcast_buffers && module == nullptr) {
      refuse(ErrorCode::invalid_argument, "broadcast_buffers needs the module; it was given a list of parameters");
    }
    for (const kolo::Parameter& piece : shards.pieces()) {
      pieces.emplace_back(piece.name, tensor_of(piece.value));
      piece_gradients.push_back(tensor_of(*piece.gradient));
    }
    optimizer = make(pieces);
    if (!optimizer) refuse(ErrorCode::invalid_argument, "the function that is to make the optimizer has returned none");
    gradients.attach(shards.reducer());
  }

  static std::vector<void*> places_of(const NamedTensors& tensors) {
    std::vector<void*> list;
    for (const auto& [name, tensor] : tensors) list.push_back(tensor.data_ptr());
    return list;
  }

  std::vector<kolo::Parameter> list() {
    std::vector<kolo::Parameter> views = gradients.views();
    for (std::size_t i = 0; i < views.size(); ++i) {
      views[i].value = memory_view(quoted_name(parameters[i].first), parameters[i].second);
    }
    return views;
  }

  void check_nothing_changed() const {
    const auto check = [](bool holds, const std::string& name, const std::string& what) {
      if (!holds) refuse(ErrorCode::invalid_argument, quoted_name(name) + what);
    };
    const std::string thawed = " when this was made; make a new one when layers have been frozen or thawed";
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto& [name, tensor] = parameters[i];
      check(tensor.requires_grad(), name, " required a gradient" + thawed);
      check(tensor.data_ptr() == places[i], name,
            " has other memory than when this was made; make a new one when the model has been moved or loaded anew");
    }
    for (const auto& [name, tensor] : frozen)
      check(!tensor.requires_grad(), name, " did not require a gradient" + thawed);
  }

  // After the gradients' reduction.
  bool apply(LossScaler* scaler) {
    gradients.release();
    const bool steps = shards.before_step(scaler == nullptr ? std::nullopt : std::optional<double>(scaler->scale()));
    if (scaler != nullptr) scaler->update(!steps);
    if (!steps) {
      shards.skip_step();
      return false;
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].second.mutable_grad() = piece_gradients[i];
    views.forget();
    optimizer->step();
    shards.after_step();
    for (const auto& [name, parameter] : parameters) mark_changed(parameter);
    if (options.reduction.broadcast_buffers) libtorch::broadcast_buffers(ranks, *module);
    return true;
  }

  bool step(LossScaler* scaler) {
    check_nothing_changed();
    return gradients.finish_micro_step() && apply(scaler);
  }

  void join(LossScaler* scaler) {
    if (options.stage == 0) {
      refuse(ErrorCode::unsupported, "join() is for stages 1 and 2; in stage 0 a rank without data calls kolo::join");
    }
    gradients.check_between_steps("join()");
    check_nothing_changed();
    while (shards.reducer().follow_step()) apply(scaler);
  }
};

ShardedOptimizer::ShardedOptimizer(torch::nn::Module& module, const Make& make, const ShardedOptimizerOptions& options)
    : ShardedOptimizer(current_context(), module, make, options) {}
ShardedOptimizer::ShardedOptimizer(const NamedTensors& parameters, const Make& make,
                                   const ShardedOptimizerOptions& options)
    : ShardedOptimizer(current_context(), parameters, make, options) {}
ShardedOptimizer::ShardedOptimizer(const Group& group, torch::nn::Module& module, const Make& make,
                                   const ShardedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(group, &module, named_parameters(module), make, options)) {}
ShardedOptimizer::ShardedOptimizer(const Group& group, const NamedTensors& parameters, const Make& make,
                                   const ShardedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(group, nullptr, parameters, make, options)) {}
ShardedOptimizer::ShardedOptimizer(ShardedOptimizer&&) noexcept = default;
ShardedOptimizer& ShardedOptimizer::operator=(ShardedOptimizer&&) noexcept = default;
ShardedOptimizer::~ShardedOptimizer() = default;

ShardedOptimizer::Impl& ShardedOptimizer::impl() const {
  if (!impl_) refuse(ErrorCode::invalid_argument, "this one was moved from");
  return *impl_;
}

void ShardedOptimizer::zero_grad(bool set_to_none) {
  if (impl().shards.reducer().may_zero()) impl_->gradients.zero(set_to_none);
}
void ShardedOptimizer::begin_micro_step(std::size_t samples) { impl().gradients.begin_micro_step(samples); }
bool ShardedOptimizer::step() { return impl().step(nullptr); }
bool ShardedOptimizer::step(LossScaler& scaler) { return impl().step(&scaler); }
bool ShardedOptimizer::flush() {
  impl().check_nothing_changed();
  return impl_->gradients.flush() && impl_->apply(nullptr);
}
void ShardedOptimizer::join() { impl().join(nullptr); }
void ShardedOptimizer::join(LossScaler& scaler) { impl().join(&scaler); }

DistributedOptimizer::NoSync ShardedOptimizer::no_sync() {
  return DistributedOptimizer::NoSync(impl().gradients.no_sync_depth());
}

torch::optim::Optimizer& ShardedOptimizer::optimizer() const { return *impl().optimizer; }
std::optional<double> ShardedOptimizer::norm() const { return impl().shards.norm(); }

std::vector<ConstNamedView> ShardedOptimizer::state() const {
  return kolo::detail::joined(impl().views.read(*impl_->optimizer, impl_->pieces), impl_->shards.state());
}
std::vector<NamedView> ShardedOptimizer::begin_load() {
  return kolo::detail::joined(impl().views.begin_load(*impl_->optimizer, impl_->pieces), impl_->shards.begin_load());
}
void ShardedOptimizer::end_load() {
  impl().views.end_load(*impl_->optimizer);
  impl_->shards.end_load();
}
std::vector<kolo::Parameter> ShardedOptimizer::parameters() const { return views(impl().parameters); }
Span<const kolo::Parameter> ShardedOptimizer::places() const { return impl().shards.places(); }

std::size_t ShardedOptimizer::started() const { return impl().gradients.started(); }
std::size_t ShardedOptimizer::finished() const { return impl().gradients.finished(); }

}  // namespace kolo::libtorch
