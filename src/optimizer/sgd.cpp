// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <kolo/error.hpp>
#include <kolo/optimizers.hpp>

#include "optimizer/elements.hpp"
#include "optimizer/state.hpp"

namespace kolo {
namespace {

// The formula of the class comment, with every hyperparameter rounded to the parameter's type.
template <class T>
struct SgdStep {
  T learning_rate, momentum, undampened, weight_decay;
  bool nesterov, first;

  SgdStep(const SgdOptions& options, bool first_step)
      : learning_rate(static_cast<T>(options.learning_rate)), momentum(static_cast<T>(options.momentum)),
        undampened(static_cast<T>(1 - options.dampening)), weight_decay(static_cast<T>(options.weight_decay)),
        nesterov(options.nesterov), first(first_step) {}

  void plain(Span<T> value, Span<T> gradient) const {
    for (std::size_t i = 0; i < value.size(); ++i) {
      value[i] -= learning_rate * (gradient[i] + weight_decay * value[i]);
    }
  }

  void with_momentum(Span<T> value, Span<T> gradient, Span<T> buffer) const {
    for (std::size_t i = 0; i < value.size(); ++i) {
      const T g = gradient[i] + weight_decay * value[i];
      buffer[i] = first ? g : momentum * buffer[i] + undampened * g;
      value[i] -= learning_rate * (nesterov ? g + momentum * buffer[i] : buffer[i]);
    }
  }
};

}  // namespace

Sgd::Sgd(std::vector<Parameter> parameters, SgdOptions options)
    : parameters_(optimizer::checked_trainable("Sgd", std::move(parameters))), options_(options) {
  optimizer::check_option("Sgd", "learning_rate", options.learning_rate);
  optimizer::check_option("Sgd", "momentum", options.momentum);
  optimizer::check_option("Sgd", "weight_decay", options.weight_decay);
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    throw Error(ErrorCode::invalid_argument, "Sgd: nesterov needs a momentum above 0 and no dampening; momentum is " +
                                                 optimizer::spell(options.momentum) + " and dampening " +
                                                 optimizer::spell(options.dampening));
  }
  if (options.momentum != 0) {
    momentum_ = optimizer::zeroed_like(parameters_);
  }
}

void Sgd::step() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    optimizer::with_type(parameters_[i].value, [&](auto zero) {
      using T = decltype(zero);
      const SgdStep<T> step(options_, steps_ == 0);
      const Span<T> value = optimizer::elements<T>(parameters_[i].value);
      const Span<T> gradient = optimizer::elements<T>(*parameters_[i].gradient);
      if (momentum_.empty()) {
        step.plain(value, gradient);
      } else {
        step.with_momentum(value, gradient, optimizer::elements<T>(momentum_[i].view()));
      }
    });
  }
  ++steps_;
}

void Sgd::zero_grad() { optimizer::zero_gradients(parameters_); }

void Sgd::set_learning_rate(double value) {
  optimizer::check_option("Sgd", "learning_rate", value);
  options_.learning_rate = value;
}

template <class View, class Self>
std::vector<View> Sgd::views_of(Self& self) {
  std::vector<View> state{optimizer::scalar_view("learning_rate", self.options_.learning_rate),
                          optimizer::scalar_view("momentum", self.options_.momentum),
                          optimizer::scalar_view("dampening", self.options_.dampening),
                          optimizer::scalar_view("weight_decay", self.options_.weight_decay),
                          optimizer::scalar_view("nesterov", self.options_.nesterov),
                          optimizer::scalar_view("steps", self.steps_)};
  optimizer::append_views(state, "momentum", self.parameters_, self.momentum_);
  return state;
}

std::vector<ConstNamedView> Sgd::state() const { return views_of<ConstNamedView>(*this); }
std::vector<NamedView> Sgd::state() { return views_of<NamedView>(*this); }

}  // namespace kolo
