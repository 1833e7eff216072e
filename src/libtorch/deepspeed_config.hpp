// SPDX-License-Identifier: Apache-2.0
//
// DeepSpeed's configuration, read and checked. Knows no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <kolo/loss_scaler.hpp>
#include <kolo/types.hpp>

namespace kolo::libtorch {

struct DeepSpeedConfig {
  /// train_batch_size is their product, times the number of ranks.
  int micro_batch_size = 1, accumulation_steps = 1;

  enum class Optimizer { sgd, adam, adamw };
  Optimizer optimizer = Optimizer::adamw;
  double learning_rate = 1e-3;
  double weight_decay = 0;
  double momentum = 0, dampening = 0;  // of SGD
  bool nesterov = false;
  std::pair<double, double> betas{0.9, 0.999};  // of Adam and AdamW
  double eps = 1e-8;
  bool amsgrad = false;

  struct Schedule {
    bool decays = false, is_linear = false;
    double min_rate = 0, max_rate = 0;
    int warmup_steps = 1000, total_steps = 0;
    /// The learning rate after so many steps, 0 before the first: as WarmupLR and WarmupDecayLR have it.
    [[nodiscard]] double rate_after(std::int64_t steps) const;
  };
  std::optional<Schedule> schedule;

  /// float16 or bfloat16, where that is enabled.
  std::optional<DType> precision;
  LossScalerOptions loss_scaler;  // with float16
  int stage = 0;
  std::optional<double> gradient_clipping;
  std::optional<DType> communication;
  int steps_per_print = 0;  // never

  /// Of the text of a file, for a job of so many ranks. Throws `Error`: invalid_argument for a text that is no JSON,
  /// for values of a wrong type or out of range, and for numbers that contradict one another; unsupported for keys and
  /// values that are not served, all of them in one sentence. It begins with `file` and the key's path, and says what
  /// to do.
  static DeepSpeedConfig parse(const std::string& file, std::string_view text, int ranks);
};

}  // namespace kolo::libtorch
