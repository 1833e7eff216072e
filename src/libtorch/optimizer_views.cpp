// SPDX-License-Identifier: Apache-2.0
#include "libtorch/optimizer_views.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>

#include <ATen/ops/zeros_like.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <kolo/error.hpp>

#include "libtorch/tensors.hpp"

namespace kolo::libtorch {
namespace {

using torch::optim::Optimizer;

// The views of one optimizer, as they are collected.
struct Collector {
  std::vector<NamedView> views;
  std::string group, parameter;  // whose turn it is

  void number(const char* name, double& value) {
    views.push_back({"options/" + group + '/' + name, kolo::view(&value, Shape{})});
  }
  void tensor(const char* name, at::Tensor& tensor, const at::Tensor& of) {
    if (!tensor.defined()) {
      tensor = at::zeros_like(of, at::MemoryFormat::Preserve);
    }
    views.push_back({name + ('/' + parameter), memory_view(parameter, tensor)});
  }
};

// What each class has. `options` and `state` list it; `step` is its count, if it has one.
template <class TheOptions, class TheState>
struct AdamLike {
  using Options = TheOptions;
  using State = TheState;
  static void options(Collector& to, Options& from) {
    to.number("lr", from.lr());
    to.number("beta1", std::get<0>(from.betas()));
    to.number("beta2", std::get<1>(from.betas()));
    to.number("eps", from.eps());
    to.number("weight_decay", from.weight_decay());
  }
  static void state(Collector& to, State& from, const Options& options, const at::Tensor& of) {
    to.tensor("exp_avg", from.exp_avg(), of);
    to.tensor("exp_avg_sq", from.exp_avg_sq(), of);
    if (options.amsgrad()) {
      to.tensor("max_exp_avg_sq", from.max_exp_avg_sq(), of);
    }
  }
  static std::int64_t* step(State& of) { return &of.step(); }
};
using Adam = AdamLike<torch::optim::AdamOptions, torch::optim::AdamParamState>;
using AdamW = AdamLike<torch::optim::AdamWOptions, torch::optim::AdamWParamState>;

struct Sgd {
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static void options(Collector& to, Options& from) {
    to.number("lr", from.lr());
    to.number("momentum", from.momentum());
    to.number("dampening", from.dampening());
    to.number("weight_decay", from.weight_decay());
  }
  static void state(Collector& to, State& from, const Options& options, const at::Tensor& of) {
    if (options.momentum() != 0) {
      to.tensor("momentum_buffer", from.momentum_buffer(), of);
    }
  }
  static std::int64_t* step(State& /*of*/) { return nullptr; }
};

struct RmsProp {
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  static void options(Collector& to, Options& from) {
    to.number("lr", from.lr());
    to.number("alpha", from.alpha());
    to.number("eps", from.eps());
    to.number("weight_decay", from.weight_decay());
    to.number("momentum", from.momentum());
  }
  static void state(Collector& to, State& from, const Options& options, const at::Tensor& of) {
    to.tensor("square_avg", from.square_avg(), of);
    if (options.momentum() > 0) {
      to.tensor("momentum_buffer", from.momentum_buffer(), of);
    }
    if (options.centered()) {
      to.tensor("grad_avg", from.grad_avg(), of);
    }
  }
  static std::int64_t* step(State& of) { return &of.step(); }
};

struct Adagrad {
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  static void options(Collector& to, Options& from) {
    to.number("lr", from.lr());
    to.number("lr_decay", from.lr_decay());
    to.number("weight_decay", from.weight_decay());
    to.number("eps", from.eps());
  }
  static void state(Collector& to, State& from, const Options& /*options*/, const at::Tensor& of) {
    to.tensor("sum", from.sum(), of);
  }
  static std::int64_t* step(State& of) { return &of.step(); }
};

// Calls `body` with the row of the optimizer's class.
template <class Body>
void with_class(Optimizer& optimizer, const Body& body) {
  if (dynamic_cast<torch::optim::AdamW*>(&optimizer) != nullptr) return body(AdamW{});
  if (dynamic_cast<torch::optim::Adam*>(&optimizer) != nullptr) return body(Adam{});
  if (dynamic_cast<torch::optim::SGD*>(&optimizer) != nullptr) return body(Sgd{});
  if (dynamic_cast<torch::optim::RMSprop*>(&optimizer) != nullptr) return body(RmsProp{});
  if (dynamic_cast<torch::optim::Adagrad*>(&optimizer) != nullptr) return body(Adagrad{});
  throw Error(ErrorCode::unsupported, "state(): only that of SGD, Adam, AdamW, RMSprop and Adagrad is known");
}

// Where LibTorch keeps a parameter's state: under its address, or under that as text, depending on the version.
template <class Map>
typename Map::key_type key_of(const Map& /*map*/, const at::Tensor& parameter) {
  if constexpr (std::is_same_v<typename Map::key_type, std::string>) {
    std::ostringstream address;
    address << parameter.unsafeGetTensorImpl();
    return address.str();
  } else {
    return parameter.unsafeGetTensorImpl();
  }
}

template <class State>
State& state_of(Optimizer& optimizer, const at::Tensor& parameter) {
  auto& slot = optimizer.state()[key_of(optimizer.state(), parameter)];
  if (!slot) {
    slot = std::make_unique<State>();
  }
  return static_cast<State&>(*slot);
}

}  // namespace

std::vector<NamedView> OptimizerViews::of(Optimizer& optimizer, const NamedTensors& parameters) {
  const at::NoGradGuard no_grad;
  std::map<const void*, std::string> names;
  for (const auto& [name, tensor] : parameters) names.emplace(tensor.unsafeGetTensorImpl(), name);
  Collector to;
  with_class(optimizer, [&](auto row) {
    using Row = decltype(row);
    for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
      auto& group = optimizer.param_groups()[i];
      auto& options = static_cast<typename Row::Options&>(group.options());
      to.group = std::to_string(i);
      Row::options(to, options);
      for (at::Tensor& parameter : group.params()) {
        const auto name = names.find(parameter.unsafeGetTensorImpl());
        if (name == names.end()) continue;
        to.parameter = name->second;
        auto& state = state_of<typename Row::State>(optimizer, parameter);
        Row::state(to, state, options, parameter);
        const std::int64_t* const step = Row::step(state);
        if (step != nullptr && !is_viewed_) steps_ = std::max(steps_, *step);
      }
    }
    typename Row::State any;  // for a rank that has no piece
    if (Row::step(any) != nullptr) to.views.push_back({"step", kolo::view(&steps_, Shape{})});
  });
  is_viewed_ = true;
  return std::move(to.views);
}

void OptimizerViews::before_step(Optimizer& optimizer) {
  if (!is_viewed_) return;
  with_class(optimizer, [&](auto row) {
    using Row = decltype(row);
    for (auto& [key, state] : optimizer.state()) {
      if (std::int64_t* step = Row::step(static_cast<typename Row::State&>(*state))) *step = steps_;
    }
  });
  is_viewed_ = false;
}

}  // namespace kolo::libtorch
