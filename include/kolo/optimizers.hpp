// SPDX-License-Identifier: Apache-2.0
//
// Two optimizers for trainers that bring none. They are local: each updates this rank's parameters from this rank's
// gradients and does not communicate; `DistributedOptimizer` makes the gradients equal first. Any class with `step()`
// can take their place.
//
// Both work on float32 and float64 parameters in CPU memory, in the parameter's own type: hyperparameters are computed
// in double and rounded to it once, as PyTorch does. State has the type and shape of its parameter and is allocated,
// zeroed, at construction. Parameters without gradient are not changed. One thread at a time; an optimizer must not
// outlive the memory that its parameters view. Move-only.
#ifndef KOLO_OPTIMIZERS_HPP
#define KOLO_OPTIMIZERS_HPP

#include <cstdint>
#include <type_traits>
#include <vector>

#include <kolo/export.hpp>
#include <kolo/optimizer_state.hpp>
#include <kolo/parameters.hpp>
#include <kolo/types.hpp>

#include <kolo/detail/setters.hpp>  // behind all others

namespace kolo {

/// Names, order and defaults are those of torch.optim.SGD.
struct SgdOptions {
  /// Step size; 0 or more.
  double learning_rate = 1e-3;
  /// How much of the last update is kept, 0 or more; 0 keeps none and allocates no buffers.
  double momentum = 0.0;
  /// The gradient enters the momentum multiplied by 1 - dampening (not in the first step).
  double dampening = 0.0;
  /// An L2 penalty: weight_decay x value is added to the gradient. 0 or more.
  double weight_decay = 0.0;
  /// Nesterov's momentum; needs a momentum and no dampening.
  bool nesterov = false;

  KOLO_SETTER(SgdOptions, double, learning_rate)
  KOLO_SETTER(SgdOptions, double, momentum)
  KOLO_SETTER(SgdOptions, double, dampening)
  KOLO_SETTER(SgdOptions, double, weight_decay)
  KOLO_SETTER(SgdOptions, bool, nesterov)
};

/// Stochastic gradient descent as torch.optim.SGD defines it
/// (https://pytorch.org/docs/stable/generated/torch.optim.SGD.html). For a value p with gradient g:
///
///     g = g + weight_decay * p
///     b = g                                    in the first step
///     b = momentum * b + (1 - dampening) * g   in every later one
///     p = p - learning_rate * (nesterov ? g + momentum * b : b)
///
/// and without momentum p = p - learning_rate * g.
class KOLO_API Sgd {
 public:
  /// Throws `Error`: invalid_argument for options out of range, names empty or repeated, a gradient unlike its value,
  /// or memory not aligned to its type; unsupported for types and devices other than the above.
  explicit Sgd(std::vector<Parameter> parameters, SgdOptions options = {});
  /// The same from a `Span<const Parameter>`.
  template <class List, class = std::enable_if_t<std::is_same_v<List, Span<const Parameter>>>>
  explicit Sgd(List parameters, SgdOptions options = {})
      : Sgd(std::vector<Parameter>(parameters.begin(), parameters.end()), options) {}

  /// Updates every parameter that has a gradient.
  void step();
  /// Sets every gradient to zero.
  void zero_grad();
  /// Those with a gradient: what `step` updates.
  [[nodiscard]] Span<const Parameter> parameters() const noexcept { return parameters_; }

  [[nodiscard]] double learning_rate() const noexcept { return options_.learning_rate; }
  /// From the next step on. Throws `Error` (invalid_argument) when negative or not a number.
  void set_learning_rate(double value);

  /// Everything that a later step depends on besides values and gradients, to be read, or overwritten by a load:
  /// hyperparameters (float64 and bool scalars), "steps" (int64), and "momentum/<parameter>" where there is momentum.
  /// The views are of this object's own memory: valid until it is moved or destroyed.
  [[nodiscard]] std::vector<ConstNamedView> state() const;
  [[nodiscard]] std::vector<NamedView> state();

 private:
  template <class View, class Self>
  static std::vector<View> views_of(Self& self);

  std::vector<Parameter> parameters_;  // those with a gradient
  SgdOptions options_;
  std::int64_t steps_ = 0;
  std::vector<Tensor> momentum_;  // one a parameter, or none without momentum
};

/// Names, order and defaults are those of torch.optim.AdamW.
struct AdamWOptions {
  /// Step size; 0 or more.
  double learning_rate = 1e-3;
  /// How much of the gradient's running mean is kept, from 0 to below 1.
  double beta1 = 0.9;
  /// How much of the running mean of its square is kept, from 0 to below 1.
  double beta2 = 0.999;
  /// Added to the denominator; 0 or more.
  double epsilon = 1e-8;
  /// Values shrink by learning_rate x weight_decay a step. 0 or more.
  double weight_decay = 1e-2;

  KOLO_SETTER(AdamWOptions, double, learning_rate)
  KOLO_SETTER(AdamWOptions, double, beta1)
  KOLO_SETTER(AdamWOptions, double, beta2)
  KOLO_SETTER(AdamWOptions, double, epsilon)
  KOLO_SETTER(AdamWOptions, double, weight_decay)
};

/// Adam with decoupled weight decay as torch.optim.AdamW defines it
/// (https://pytorch.org/docs/stable/generated/torch.optim.AdamW.html; Loshchilov and Hutter, "Decoupled Weight Decay
/// Regularization", 2019). In step t = 1, 2, ..., for a value p with gradient g:
///
///     p = p * (1 - learning_rate * weight_decay)
///     m = m + (1 - beta1) * (g - m)
///     v = beta2 * v + (1 - beta2) * g * g
///     p = p - learning_rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
class KOLO_API AdamW {
 public:
  /// Throws `Error`: as `Sgd`.
  explicit AdamW(std::vector<Parameter> parameters, AdamWOptions options = {});
  /// The same from a `Span<const Parameter>`.
  template <class List, class = std::enable_if_t<std::is_same_v<List, Span<const Parameter>>>>
  explicit AdamW(List parameters, AdamWOptions options = {})
      : AdamW(std::vector<Parameter>(parameters.begin(), parameters.end()), options) {}

  /// Updates every parameter that has a gradient.
  void step();
  /// Sets every gradient to zero.
  void zero_grad();
  /// Those with a gradient: what `step` updates.
  [[nodiscard]] Span<const Parameter> parameters() const noexcept { return parameters_; }

  [[nodiscard]] double learning_rate() const noexcept { return options_.learning_rate; }
  /// From the next step on. Throws `Error` (invalid_argument) when negative or not a number.
  void set_learning_rate(double value);

  /// As `Sgd::state()`: hyperparameters, "steps" (int64), "mean/<parameter>" and "square/<parameter>" (m and v).
  [[nodiscard]] std::vector<ConstNamedView> state() const;
  [[nodiscard]] std::vector<NamedView> state();

 private:
  template <class View, class Self>
  static std::vector<View> views_of(Self& self);

  std::vector<Parameter> parameters_;  // those with a gradient
  AdamWOptions options_;
  std::int64_t steps_ = 0;
  std::vector<Tensor> mean_;    // one a parameter
  std::vector<Tensor> square_;  // one a parameter
};

}  // namespace kolo

#undef KOLO_SETTER
#undef KOLO_SETTER_TIMEOUT

#endif  // KOLO_OPTIMIZERS_HPP
