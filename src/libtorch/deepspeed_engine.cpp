// SPDX-License-Identifier: Apache-2.0
//
// DeepSpeed's engine: what its configuration says, as options of a `ShardedOptimizer`, and the counting of steps.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <kolo/checkpoint.hpp>
#include <kolo/error.hpp>
#include <kolo/libtorch.hpp>

#include "base/files.hpp"
#include "base/text.hpp"
#include "libtorch/deepspeed_config.hpp"
#include "libtorch/tensors.hpp"

namespace kolo::libtorch {
namespace {

constexpr std::size_t kLongestFile = std::size_t{1} << 20;

// Gives parameters and buffers another floating-point type; counts stay what they are.
void cast_to(torch::nn::Module& module, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  for (const NamedTensors& list : {named_parameters(module), named_buffers(module)}) {
    for (const auto& [name, tensor] : list) {
      if (tensor.is_floating_point()) at::Tensor(tensor).set_data(tensor.to(type));
    }
  }
}

template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> make_adam(const NamedTensors& mine, const DeepSpeedConfig& config) {
  return std::make_unique<Optimizer>(tensors(mine), Options(config.learning_rate)
                                                        .betas({config.betas.first, config.betas.second})
                                                        .eps(config.eps)
                                                        .weight_decay(config.weight_decay)
                                                        .amsgrad(config.amsgrad));
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const NamedTensors& mine, const DeepSpeedConfig& config) {
  switch (config.optimizer) {
  case DeepSpeedConfig::Optimizer::adam:
    return make_adam<torch::optim::Adam, torch::optim::AdamOptions>(mine, config);
  case DeepSpeedConfig::Optimizer::adamw:
    return make_adam<torch::optim::AdamW, torch::optim::AdamWOptions>(mine, config);
  case DeepSpeedConfig::Optimizer::sgd:
    break;
  }
  return std::make_unique<torch::optim::SGD>(tensors(mine), torch::optim::SGDOptions(config.learning_rate)
                                                                .momentum(config.momentum)
                                                                .dampening(config.dampening)
                                                                .weight_decay(config.weight_decay)
                                                                .nesterov(config.nesterov));
}

ShardedOptimizerOptions options_of(const DeepSpeedConfig& config) {
  ShardedOptimizerOptions options;
  options.reduction.accumulation_steps = config.accumulation_steps;
  options.reduction.send_gradients_as = config.communication;
  options.stage = config.stage;
  options.max_norm = config.gradient_clipping;
  options.master_weights = config.precision.has_value();
  return options;
}

}  // namespace

struct Engine::Impl {
  const Group group;
  torch::nn::Module& module;
  const DeepSpeedConfig config;
  std::optional<LossScaler> scaler;
  ShardedOptimizer optimizer;
  int micro_step = 0;
  std::int64_t steps = 0;
  std::int64_t skipped_by_norm = 0;  // without a scaler, which counts by itself

  Impl(const Group& ranks, torch::nn::Module& model, DeepSpeedConfig given)
      : group(ranks), module(model), config(std::move(given)), scaler(scaler_of(config)),
        optimizer(
            group, prepared(), [this](const NamedTensors& mine) { return make_optimizer(mine, config); },
            options_of(config)) {
    set_learning_rate();
  }

  static std::optional<LossScaler> scaler_of(const DeepSpeedConfig& config) {
    if (config.precision != DType::float16) return std::nullopt;
    return LossScaler(config.loss_scaler);
  }

  torch::nn::Module& prepared() {
    if (config.precision) cast_to(module, scalar_type_of(*config.precision));
    broadcast_parameters(group, module);
    return module;
  }

  [[nodiscard]] std::int64_t skipped() const { return scaler ? scaler->skipped() : skipped_by_norm; }

  void set_learning_rate() {
    if (!config.schedule) return;
    for (auto& each : optimizer.optimizer().param_groups()) {
      each.options().set_lr(config.schedule->rate_after(steps - skipped()));
    }
  }

  bool step() {
    const bool ends = micro_step + 1 == config.accumulation_steps;
    micro_step = ends ? 0 : micro_step + 1;
    const bool has_stepped = scaler ? optimizer.step(*scaler) : optimizer.step();
    if (!ends) return false;
    ++steps;
    optimizer.zero_grad();
    if (!has_stepped && !scaler) ++skipped_by_norm;
    if (has_stepped) set_learning_rate();
    if (config.steps_per_print > 0 && steps % config.steps_per_print == 0 && rank(group) == 0) print();
    return has_stepped;
  }

  void print() const {
    std::printf("step=%lld, skipped=%lld, lr=%s, loss_scale=%s\n", static_cast<long long>(steps),
                static_cast<long long>(skipped()), base::spell(learning_rate(), 6).c_str(),
                base::spell(scaler ? scaler->scale() : 1, 6).c_str());
    std::fflush(stdout);
  }

  [[nodiscard]] double learning_rate() const { return optimizer.optimizer().param_groups().front().options().get_lr(); }

  CheckpointOptions in_checkpoint() {
    CheckpointOptions options = CheckpointOptions().with_value("global_steps", steps);
    if (scaler) return options.with_loss_scaler(*scaler);
    return options.with_value("skipped_steps", skipped_by_norm);
  }
};

Engine::Engine(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Engine initialize(const Group& group, torch::nn::Module& module, const std::string& config) {
  const std::string text =
      on_root(group, "initialize", 0, ErrorCode::io, [&] { return base::read_named(config, kLongestFile); });
  return Engine(std::make_unique<Engine::Impl>(group, module, DeepSpeedConfig::parse(config, text, size(group))));
}

void Engine::backward(const at::Tensor& loss) {
  if (impl_->scaler) {
    (loss.to(at::kFloat) * impl_->scaler->scale()).backward();
  } else {
    loss.backward();
  }
}
bool Engine::step() { return impl_->step(); }
bool Engine::is_gradient_accumulation_boundary() const {
  return impl_->micro_step + 1 == impl_->config.accumulation_steps;
}
void Engine::join() {
  if (impl_->scaler) {
    impl_->optimizer.join(*impl_->scaler);
  } else {
    impl_->optimizer.join();
  }
}

int Engine::train_batch_size() const {
  return impl_->config.micro_batch_size * impl_->config.accumulation_steps * size(impl_->group);
}
int Engine::train_micro_batch_size_per_gpu() const { return impl_->config.micro_batch_size; }
int Engine::gradient_accumulation_steps() const { return impl_->config.accumulation_steps; }
std::int64_t Engine::global_steps() const { return impl_->steps; }
std::int64_t Engine::skipped_steps() const { return impl_->skipped(); }
double Engine::learning_rate() const { return impl_->learning_rate(); }
double Engine::loss_scale() const { return impl_->scaler ? impl_->scaler->scale() : 1; }
ShardedOptimizer& Engine::optimizer() const { return impl_->optimizer; }

void Engine::save_checkpoint(const std::string& path) const {
  kolo::save_checkpoint(impl_->group, path, views(impl_->module), impl_->optimizer, impl_->in_checkpoint());
}
void Engine::load_checkpoint(const std::string& path) {
  kolo::load_checkpoint(impl_->group, path, views(impl_->module), impl_->optimizer, impl_->in_checkpoint());
}

}  // namespace kolo::libtorch
