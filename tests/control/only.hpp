// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "core/signature.hpp"

namespace kolo::control {

/// An all-reduce of so many elements.
inline core::Signature signature_of(std::int64_t elements) {
  core::Signature signature;
  signature.tensors.push_back({DType::float32, Shape{elements}});
  return signature;
}

/// What there is of these messages, entries or actions, which is one, and of this kind.
template <class Kind, class Said>
Kind only(const std::vector<Said>& all) {
  EXPECT_EQ(all.size(), 1U);
  return std::get<Kind>(all.at(0));
}

}  // namespace kolo::control
