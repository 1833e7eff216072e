// SPDX-License-Identifier: Apache-2.0
#include "libtorch/gradient_hooks.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace kolo::libtorch {
namespace {

using torch::autograd::variable_list;

struct BeforeHook : torch::autograd::FunctionPreHook {
  explicit BeforeHook(GradientHooks::Before call) : call(std::move(call)) {}
  variable_list operator()(const variable_list& incoming) override {
    call(incoming.at(0));
    return incoming;
  }
  GradientHooks::Before call;
};

struct AfterHook : torch::autograd::FunctionPostHook {
  explicit AfterHook(GradientHooks::After call) : call(std::move(call)) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    call();
    return outputs;
  }
  GradientHooks::After call;
};

}  // namespace

struct GradientHooks::Impl {
  // An owning pointer of the kind that this version of LibTorch has; the tensor itself holds the node weakly.
  using Owner = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  Owner accumulator;
  torch::autograd::FunctionPreHook* first = nullptr;
  std::uintptr_t second = 0;

  Impl(const at::Tensor& parameter, Before before, After after)
      : accumulator(torch::autograd::impl::grad_accumulator(parameter)) {
    auto hook = std::make_unique<BeforeHook>(std::move(before));
    first = hook.get();
    accumulator->add_pre_hook(std::move(hook));
    second = accumulator->add_post_hook(std::make_unique<AfterHook>(std::move(after)));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    auto& hooks = accumulator->pre_hooks();
    hooks.erase(std::remove_if(hooks.begin(), hooks.end(), [&](const auto& hook) { return hook.get() == first; }),
                hooks.end());
    accumulator->del_post_hook(second);
  }
};

GradientHooks::GradientHooks(const at::Tensor& parameter, Before before, After after)
    : impl_(std::make_unique<Impl>(parameter, std::move(before), std::move(after))) {}
GradientHooks::GradientHooks(GradientHooks&&) noexcept = default;
GradientHooks& GradientHooks::operator=(GradientHooks&&) noexcept = default;
GradientHooks::~GradientHooks() = default;

}  // namespace kolo::libtorch
