// SPDX-License-Identifier: Apache-2.0
//
// Tensors that notice what is written beside them, and what to put into them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <kolo/types.hpp>

#include "data/backend.hpp"
#include "tests/support/exact_values.hpp"

namespace kolo::data::cpu::test {

inline constexpr std::byte kPoison{0xA5};

using kolo::testing::is_bitwise;
using kolo::testing::is_defined;
using kolo::testing::is_float;
using kolo::testing::kPeriod;
using kolo::testing::kReduceOps;
using kolo::testing::reduced_value;
using kolo::testing::store;
using kolo::testing::store_repeating;
using kolo::testing::value_of;

/// Elements between poisoned borders, at any alignment.
class Tensor {
 public:
  /// With `memory` there: room for `whole_size`, which outlives the tensor.
  Tensor(DType dtype, std::int64_t elements, std::size_t misalignment, std::byte* memory = nullptr)
      : dtype_(dtype), elements_(elements), begin_(kBorder + misalignment),
        whole_(whole_size(dtype, elements, misalignment)), own_(memory == nullptr ? whole_ : 0),
        bytes_(memory == nullptr ? own_.data() : memory) {
    std::fill(bytes_, bytes_ + whole_, kPoison);
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  static std::size_t whole_size(DType dtype, std::int64_t elements, std::size_t misalignment) {
    return 2 * kBorder + misalignment + static_cast<std::size_t>(elements) * size_of(dtype);
  }

  std::byte* data() { return bytes_ + begin_; }
  std::size_t size() const { return static_cast<std::size_t>(elements_) * size_of(dtype_); }
  std::byte* element(std::int64_t i) { return data() + static_cast<std::size_t>(i) * size_of(dtype_); }
  std::vector<std::byte> contents() { return {data(), data() + size()}; }

  void expect_borders_untouched() const {
    for (const auto& [begin, end] : {std::pair(std::size_t{0}, begin_), std::pair(begin_ + size(), whole_)}) {
      for (std::size_t i = begin; i < end; ++i) {
        if (bytes_[i] != kPoison) FAIL() << "byte " << i << " beside the tensor";
      }
    }
  }

 private:
  static constexpr std::size_t kBorder = 64;
  DType dtype_;
  std::int64_t elements_;
  std::size_t begin_;
  std::size_t whole_;
  std::vector<std::byte> own_;
  std::byte* bytes_;
};

}  // namespace kolo::data::cpu::test
