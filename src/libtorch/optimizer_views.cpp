// SPDX-License-Identifier: Apache-2.0
#include "libtorch/optimizer_views.hpp"

#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <ATen/ops/full_like.h>
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

at::Tensor zeros(const at::Tensor& like) { return at::zeros_like(like, at::MemoryFormat::Preserve); }

// What each class has. `numbers` and `tensors` call `body` with each and LibTorch's name of it; `initial` is what a
// tensor begins as. A class that counts steps begins with such a state; to SGD a buffer of zeros is another thing than
// none.
template <class TheOptions, class TheState>
struct AdamLike {
  using Options = TheOptions;
  using State = TheState;
  static constexpr bool counts_steps = true;
  template <class From, class Body>
  static void numbers(From& from, const Body& body) {
    body("lr", from.lr());
    body("beta1", std::get<0>(from.betas()));
    body("beta2", std::get<1>(from.betas()));
    body("eps", from.eps());
    body("weight_decay", from.weight_decay());
  }
  template <class Body>
  static void tensors(State& of, const Options& options, const Body& body) {
    body("exp_avg", of.exp_avg());
    body("exp_avg_sq", of.exp_avg_sq());
    if (options.amsgrad()) body("max_exp_avg_sq", of.max_exp_avg_sq());
  }
  static at::Tensor initial(const Options& /*options*/, const at::Tensor& of) { return zeros(of); }
};
using Adam = AdamLike<torch::optim::AdamOptions, torch::optim::AdamParamState>;
using AdamW = AdamLike<torch::optim::AdamWOptions, torch::optim::AdamWParamState>;

struct Sgd {
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static constexpr bool counts_steps = false;
  template <class From, class Body>
  static void numbers(From& from, const Body& body) {
    body("lr", from.lr());
    body("momentum", from.momentum());
    body("dampening", from.dampening());
    body("weight_decay", from.weight_decay());
    body("nesterov", from.nesterov());
  }
  template <class Body>
  static void tensors(State& of, const Options& options, const Body& body) {
    if (options.momentum() != 0) body("momentum_buffer", of.momentum_buffer());
  }
  static at::Tensor initial(const Options& /*options*/, const at::Tensor& of) { return zeros(of); }
};

struct RmsProp {
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  static constexpr bool counts_steps = true;
  template <class From, class Body>
  static void numbers(From& from, const Body& body) {
    body("lr", from.lr());
    body("alpha", from.alpha());
    body("eps", from.eps());
    body("weight_decay", from.weight_decay());
    body("momentum", from.momentum());
  }
  template <class Body>
  static void tensors(State& of, const Options& options, const Body& body) {
    body("square_avg", of.square_avg());
    if (options.momentum() > 0) body("momentum_buffer", of.momentum_buffer());
    if (options.centered()) body("grad_avg", of.grad_avg());
  }
  static at::Tensor initial(const Options& /*options*/, const at::Tensor& of) { return zeros(of); }
};

struct Adagrad {
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  static constexpr bool counts_steps = true;
  template <class From, class Body>
  static void numbers(From& from, const Body& body) {
    body("lr", from.lr());
    body("lr_decay", from.lr_decay());
    body("weight_decay", from.weight_decay());
    body("eps", from.eps());
  }
  template <class Body>
  static void tensors(State& of, const Options& /*options*/, const Body& body) {
    body("sum", of.sum());
  }
  static at::Tensor initial(const Options& options, const at::Tensor& of) {
    return at::full_like(of, options.initial_accumulator_value(), at::MemoryFormat::Preserve);
  }
};

// Calls `body` with the row of the optimizer's class.
template <class Body>
void with_class(const Optimizer& optimizer, const Body& body) {
  if (dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr) return body(AdamW{});
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr) return body(Adam{});
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer) != nullptr) return body(Sgd{});
  if (dynamic_cast<const torch::optim::RMSprop*>(&optimizer) != nullptr) return body(RmsProp{});
  if (dynamic_cast<const torch::optim::Adagrad*>(&optimizer) != nullptr) return body(Adagrad{});
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

template <class Row>
struct HeldOf : OptimizerViews::Held {
  at::Tensor parameter;
  typename Row::State state;
  bool exists = false;

  HeldOf(const Optimizer& optimizer, const typename Row::Options& options, const at::Tensor& of) : parameter(of) {
    const auto found = optimizer.state().find(key_of(optimizer.state(), of));
    exists = found != optimizer.state().end() && found->second != nullptr;
    if (exists) state = static_cast<const typename Row::State&>(*found->second);
    Row::tensors(state, options, [&](const char* /*name*/, at::Tensor& tensor) {
      if (!tensor.defined()) tensor = Row::initial(options, of);
    });
  }
  void give_to(Optimizer& optimizer) override {
    const auto key = key_of(optimizer.state(), parameter);
    if (Row::counts_steps || exists) {
      optimizer.state()[key] = std::make_unique<typename Row::State>(state);
    } else {
      optimizer.state().erase(key);
    }
  }
};

template <class View, class T>
View scalar(std::string name, T& value) {
  if constexpr (std::is_same_v<View, NamedView>) {
    return {std::move(name), kolo::view(&value, Shape{})};
  } else {
    return {std::move(name), kolo::const_view(&value, Shape{})};
  }
}

template <class Row, class View>
void append(std::vector<View>& views, const std::string& name, HeldOf<Row>& held,
            const typename Row::Options& options) {
  bool has_any = false;
  Row::tensors(held.state, options, [&](const char* which, at::Tensor& tensor) {
    views.push_back({which + ('/' + name), memory_view(name, tensor)});
    has_any = true;
  });
  if constexpr (Row::counts_steps) {
    views.push_back(scalar<View>("step/" + name, held.state.step()));
  } else if (has_any) {
    views.push_back(scalar<View>("has_momentum/" + name, held.exists));
  }
}

// Views of a const optimizer's numbers, which are to be read, or of another's.
template <class View, class TheOptimizer>
std::vector<View> views_of(TheOptimizer& optimizer, const NamedTensors& parameters,
                           std::vector<std::unique_ptr<OptimizerViews::Held>>& all) {
  const at::NoGradGuard no_grad;
  std::map<const void*, std::string> names;
  for (const auto& [name, tensor] : parameters) names.emplace(tensor.unsafeGetTensorImpl(), name);
  all.clear();
  std::vector<View> views;
  with_class(optimizer, [&](auto row) {
    using Row = decltype(row);
    std::size_t number = 0;
    for (auto& group : optimizer.param_groups()) {
      using Options = typename Row::Options;
      auto& options =
          static_cast<std::conditional_t<std::is_const_v<TheOptimizer>, const Options, Options>&>(group.options());
      const std::string prefix = "options/" + std::to_string(number++) + '/';
      Row::numbers(options,
                   [&](const char* which, auto& value) { views.push_back(scalar<View>(prefix + which, value)); });
      for (const at::Tensor& parameter : group.params()) {
        const auto name = names.find(parameter.unsafeGetTensorImpl());
        if (name == names.end() || parameter.numel() == 0) continue;
        auto held = std::make_unique<HeldOf<Row>>(optimizer, options, parameter);
        append(views, name->second, *held, options);
        all.push_back(std::move(held));
      }
    }
  });
  return views;
}

}  // namespace

std::vector<ConstNamedView> OptimizerViews::read(const Optimizer& optimizer, const NamedTensors& parameters) {
  return views_of<ConstNamedView>(optimizer, parameters, read_);
}

std::vector<NamedView> OptimizerViews::begin_load(Optimizer& optimizer, const NamedTensors& parameters) {
  return views_of<NamedView>(optimizer, parameters, loading_);
}

void OptimizerViews::end_load(Optimizer& optimizer) {
  for (const std::unique_ptr<Held>& held : loading_) held->give_to(optimizer);
  forget();
}

void OptimizerViews::forget() noexcept {
  read_.clear();
  loading_.clear();
}

}  // namespace kolo::libtorch
