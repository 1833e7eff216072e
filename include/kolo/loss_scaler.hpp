// SPDX-License-Identifier: Apache-2.0
//
// Loss scaling, for gradients that are computed in 16 bits: small ones would become zero. The loss is multiplied by a
// large number before the backward pass, and the gradients are divided by it before the step. A gradient that became
// infinite tells that the number was too large; then the step is skipped, on every rank. (Micikevicius and others,
// "Mixed Precision Training", 2018; names and rule are DeepSpeed's.)
//
//     kolo::LossScaler scaler;
//     net.backward(loss * scaler.scale());
//     optimizer.step(scaler);                  // of a DistributedOptimizer or ShardedOptimizer
#ifndef KOLO_LOSS_SCALER_HPP
#define KOLO_LOSS_SCALER_HPP

#include <cstdint>
#include <vector>

#include <kolo/export.hpp>
#include <kolo/optimizer_state.hpp>
#include <kolo/types.hpp>

#include <kolo/detail/setters.hpp>  // behind all others

namespace kolo {

struct LossScalerOptions {
  /// The scale, if it is to stay the same; 0: it follows what happens. 0 or more.
  double loss_scale = 0;
  /// It begins with 2 to this power, -126 to 127.
  int initial_scale_power = 16;
  /// It is doubled after so many steps in a row without an overflow, 1 or more.
  int loss_scale_window = 2000;
  /// It is halved at this many overflows since it last was doubled, and at each later one. 1 or more.
  int hysteresis = 1;
  /// It never becomes less than this. More than 0.
  double min_loss_scale = 1;

  KOLO_SETTER(LossScalerOptions, double, loss_scale)
  KOLO_SETTER(LossScalerOptions, int, initial_scale_power)
  KOLO_SETTER(LossScalerOptions, int, loss_scale_window)
  KOLO_SETTER(LossScalerOptions, int, hysteresis)
  KOLO_SETTER(LossScalerOptions, double, min_loss_scale)
};

/// The scale, and its course. Local: ranks agree because every rank learns of an overflow in the same step. Every rank
/// makes one with the same options. One thread at a time.
class KOLO_API LossScaler {
 public:
  /// Throws `Error` (invalid_argument) for options out of range.
  explicit LossScaler(const LossScalerOptions& options = {});

  /// By which the loss of the next backward pass is multiplied.
  [[nodiscard]] double scale() const noexcept { return scale_; }
  /// A step has ended. The optimizers' `step(scaler)` calls it. Throws `Error` (invalid_argument), on all ranks, once
  /// 100 steps in a row have overflowed at a scale that cannot become less: nothing would be trained any more.
  void update(bool has_overflowed);
  /// Whether the last step was skipped.
  [[nodiscard]] bool has_overflowed() const noexcept { return has_overflowed_; }
  /// How many steps were skipped in all.
  [[nodiscard]] std::int64_t skipped() const noexcept { return skipped_; }

  /// What a later step depends on, to be read, or overwritten by a load: "scale" (float64), "good_steps", "tolerated"
  /// and "skipped" (int64). The views are of this object's own memory.
  [[nodiscard]] std::vector<ConstNamedView> state() const;
  [[nodiscard]] std::vector<NamedView> state();

 private:
  void follow(bool has_overflowed);
  template <class View, class Self>
  static std::vector<View> views_of(Self& self);

  LossScalerOptions options_;
  double scale_;
  std::int64_t good_steps_ = 0;  // since the last overflow, or since it was doubled
  std::int64_t tolerated_ = 0;   // overflows that did not halve it
  std::int64_t skipped_ = 0;
  std::int64_t skipped_at_least_ = 0;  // in a row, at a scale that cannot become less
  bool has_overflowed_ = false;
};

}  // namespace kolo

#undef KOLO_SETTER
#undef KOLO_SETTER_TIMEOUT

#endif  // KOLO_LOSS_SCALER_HPP
