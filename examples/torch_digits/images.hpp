// SPDX-License-Identifier: Apache-2.0
//
// The digits as tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "examples/train_digits/digits.hpp"

namespace torch_digits {

struct Images {
  torch::Tensor pixels, labels;
};

inline Images images_of(const train_digits::Digits& digits, const train_digits::Rows& rows, torch::Device device) {
  const auto batch = train_digits::gather<float>(digits, rows);
  const auto count = static_cast<std::int64_t>(rows.size());
  return {torch::tensor(batch.pixels).reshape({count, static_cast<std::int64_t>(train_digits::kPixels)}).to(device),
          torch::tensor(batch.labels).to(device, torch::kLong)};
}

inline Images pick(const Images& from, const std::vector<std::size_t>& rows) {
  const torch::Tensor index =
      torch::tensor(std::vector<std::int64_t>(rows.begin(), rows.end())).to(from.pixels.device());
  return {from.pixels.index_select(0, index), from.labels.index_select(0, index)};
}

}  // namespace torch_digits
