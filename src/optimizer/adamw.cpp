// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>

#include <kolo/error.hpp>
#include <kolo/optimizers.hpp>

#include "optimizer/elements.hpp"
#include "optimizer/state.hpp"

namespace kolo {
namespace {

// The formula of the class comment for one step; what does not depend on the element is computed once, in double.
template <class T>
struct AdamWStep {
  T shrink, mean_weight, beta2, square_weight, correction, epsilon, step_size;

  AdamWStep(const AdamWOptions& options, std::int64_t t)
      : shrink(static_cast<T>(1 - options.learning_rate * options.weight_decay)),
        mean_weight(static_cast<T>(1 - options.beta1)), beta2(static_cast<T>(options.beta2)),
        square_weight(static_cast<T>(1 - options.beta2)),
        correction(static_cast<T>(std::sqrt(1 - std::pow(options.beta2, static_cast<double>(t))))),
        epsilon(static_cast<T>(options.epsilon)),
        step_size(static_cast<T>(options.learning_rate / (1 - std::pow(options.beta1, static_cast<double>(t))))) {}

  void operator()(Span<T> value, Span<T> gradient, Span<T> mean, Span<T> square) const {
    for (std::size_t i = 0; i < value.size(); ++i) {
      mean[i] += mean_weight * (gradient[i] - mean[i]);
      square[i] = beta2 * square[i] + square_weight * gradient[i] * gradient[i];
      value[i] = value[i] * shrink - step_size * mean[i] / (std::sqrt(square[i]) / correction + epsilon);
    }
  }
};

}  // namespace

AdamW::AdamW(std::vector<Parameter> parameters, AdamWOptions options)
    : parameters_(optimizer::checked_trainable("AdamW", std::move(parameters))), options_(options) {
  optimizer::check_option("AdamW", "learning_rate", options.learning_rate);
  optimizer::check_option("AdamW", "beta1", options.beta1, 1);
  optimizer::check_option("AdamW", "beta2", options.beta2, 1);
  optimizer::check_option("AdamW", "epsilon", options.epsilon);
  optimizer::check_option("AdamW", "weight_decay", options.weight_decay);
  mean_ = optimizer::zeroed_like(parameters_);
  square_ = optimizer::zeroed_like(parameters_);
}

void AdamW::step() {
  ++steps_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    optimizer::with_type(parameters_[i].value, [&](auto zero) {
      using T = decltype(zero);
      const AdamWStep<T> step(options_, steps_);
      step(optimizer::elements<T>(parameters_[i].value), optimizer::elements<T>(*parameters_[i].gradient),
           optimizer::elements<T>(mean_[i].view()), optimizer::elements<T>(square_[i].view()));
    });
  }
}

void AdamW::zero_grad() { optimizer::zero_gradients(parameters_); }

void AdamW::set_learning_rate(double value) {
  optimizer::check_option("AdamW", "learning_rate", value);
  options_.learning_rate = value;
}

template <class View, class Self>
std::vector<View> AdamW::views_of(Self& self) {
  std::vector<View> state{optimizer::scalar_view("learning_rate", self.options_.learning_rate),
                          optimizer::scalar_view("beta1", self.options_.beta1),
                          optimizer::scalar_view("beta2", self.options_.beta2),
                          optimizer::scalar_view("epsilon", self.options_.epsilon),
                          optimizer::scalar_view("weight_decay", self.options_.weight_decay),
                          optimizer::scalar_view("steps", self.steps_)};
  optimizer::append_views(state, "mean", self.parameters_, self.mean_);
  optimizer::append_views(state, "square", self.parameters_, self.square_);
  return state;
}

std::vector<ConstNamedView> AdamW::state() const { return views_of<ConstNamedView>(*this); }
std::vector<NamedView> AdamW::state() { return views_of<NamedView>(*this); }

}  // namespace kolo
