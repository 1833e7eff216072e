// SPDX-License-Identifier: Apache-2.0
#include <kolo/loss_scaler.hpp>

#include <algorithm>
#include <cmath>
#include <string>

#include <kolo/error.hpp>

#include "optimizer/state.hpp"

namespace kolo {
namespace {

/// How many steps in a row may be skipped when the scale cannot fall any more.
constexpr std::int64_t kMostAtLeast = 100;

LossScalerOptions checked(const LossScalerOptions& options) {
  const auto check = [](bool is_right, const std::string& sentence) {
    if (!is_right) throw Error(ErrorCode::invalid_argument, "LossScaler: " + sentence);
  };
  check(options.loss_scale >= 0 && std::isfinite(options.loss_scale),
        "loss_scale must be 0 (it follows what happens) or a number above it");
  check(options.initial_scale_power >= -126 && options.initial_scale_power <= 127,
        "initial_scale_power is " + std::to_string(options.initial_scale_power) + "; it must be -126 to 127");
  check(options.loss_scale_window >= 1,
        "loss_scale_window is " + std::to_string(options.loss_scale_window) + "; it must be 1 or more");
  check(options.hysteresis >= 1, "hysteresis is " + std::to_string(options.hysteresis) + "; it must be 1 or more");
  check(options.min_loss_scale > 0 && std::isfinite(options.min_loss_scale), "min_loss_scale must be more than 0");
  return options;
}

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options)
    : options_(checked(options)),
      scale_(options.loss_scale > 0 ? options.loss_scale
                                    : std::max(std::ldexp(1.0, options.initial_scale_power), options.min_loss_scale)) {}

void LossScaler::update(bool has_overflowed) {
  has_overflowed_ = has_overflowed;
  if (has_overflowed) ++skipped_;
  const bool is_least = options_.loss_scale > 0 || scale_ <= options_.min_loss_scale;
  skipped_at_least_ = has_overflowed && is_least ? skipped_at_least_ + 1 : 0;
  follow(has_overflowed);
  if (skipped_at_least_ >= kMostAtLeast) {
    throw Error(
        ErrorCode::invalid_argument,
        "LossScaler: " + std::to_string(skipped_at_least_) +
            " steps in a row were skipped, though the loss scale cannot become less: gradients are infinite or no "
            "numbers whatever the scale is. Look for the first with KOLO_CHECK_NAN=1, or lower min_loss_scale");
  }
}

void LossScaler::follow(bool has_overflowed) {
  if (options_.loss_scale > 0) return;
  if (has_overflowed) {
    good_steps_ = 0;
    if (tolerated_ + 1 < options_.hysteresis) {
      ++tolerated_;
    } else {
      scale_ = std::max(scale_ / 2, options_.min_loss_scale);
    }
  } else if (++good_steps_ == options_.loss_scale_window) {
    good_steps_ = tolerated_ = 0;
    if (std::isfinite(static_cast<float>(scale_ * 2))) scale_ *= 2;
  }
}

template <class View, class Self>
std::vector<View> LossScaler::views_of(Self& self) {
  std::vector<View> state{
      optimizer::scalar_view("scale", self.scale_), optimizer::scalar_view("good_steps", self.good_steps_),
      optimizer::scalar_view("tolerated", self.tolerated_), optimizer::scalar_view("skipped", self.skipped_)};
  return state;
}

std::vector<ConstNamedView> LossScaler::state() const { return views_of<ConstNamedView>(*this); }
std::vector<NamedView> LossScaler::state() { return views_of<NamedView>(*this); }

}  // namespace kolo
