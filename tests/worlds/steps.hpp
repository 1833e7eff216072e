// SPDX-License-Identifier: Apache-2.0
//
// A trainer's step as the tests of worlds run it: tensors that every rank submits in an order of its own, whose sums
// are known exactly.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>

namespace kolo::testing {

/// `count` tensors, "<prefix>0" and so on, of different lengths.
class Gradients {
 public:
  explicit Gradients(std::size_t count, std::string prefix = "t", std::size_t longest = 300)
      : prefix_(std::move(prefix)), tensors_(count) {
    for (std::size_t i = 0; i < count; ++i) tensors_[i].resize(1 + (i * 37) % longest);
  }

  [[nodiscard]] std::size_t count() const { return tensors_.size(); }
  [[nodiscard]] std::string name(std::size_t which) const { return prefix_ + std::to_string(which); }
  [[nodiscard]] std::vector<float>& operator[](std::size_t which) { return tensors_[which]; }
  /// The order in which this rank submits: different on every rank and in every step.
  [[nodiscard]] std::size_t pick(std::size_t k, int step, int rank) const {
    return (k * stride() + static_cast<std::size_t>(step) * 3 + static_cast<std::size_t>(rank) * 11) % count();
  }

  /// Whole numbers that depend on everything, small enough for their sums to be exact.
  void fill(std::size_t which, int step, int rank) {
    float* elements = tensors_[which].data();
    for (std::size_t i = 0, count = tensors_[which].size(); i < count; ++i) elements[i] = term(which, i, step, rank);
  }
  void check(std::size_t which, int step, int size) const {
    const float* elements = tensors_[which].data();
    for (std::size_t i = 0, count = tensors_[which].size(); i < count; ++i) {
      float wanted = 0;
      for (int rank = 0; rank < size; ++rank) wanted += term(which, i, step, rank);
      if (elements[i] == wanted) continue;  // an assertion takes a while, under a sanitizer above all
      ASSERT_EQ(elements[i], wanted) << name(which) << "[" << i << "] in step " << step;
    }
  }

  [[nodiscard]] Handle submit(Context& context, std::size_t which, int step) {
    fill(which, step, context.rank());
    return allreduce_async({context, name(which)}, view(tensors_[which]));
  }

  /// One step: all of them, then all are waited for. The caller ends it.
  void run(Context& context, int step) {
    std::vector<Handle> handles;
    for (std::size_t k = 0; k < count(); ++k) handles.push_back(submit(context, pick(k, step, context.rank()), step));
    wait_all(handles);
    for (std::size_t which = 0; which < count(); ++which) check(which, step, context.size());
  }

 private:
  static float term(std::size_t which, std::size_t i, int step, int rank) {
    return static_cast<float>((which * 5 + i) % 101) + static_cast<float>(step % 50) * static_cast<float>(rank + 1);
  }
  /// Coprime to the count, so that every tensor is picked once.
  [[nodiscard]] std::size_t stride() const {
    for (const std::size_t candidate : {7U, 11U, 13U, 17U}) {
      if (count() % candidate != 0) return candidate;
    }
    return 1;
  }

  std::string prefix_;
  std::vector<std::vector<float>> tensors_;
};

}  // namespace kolo::testing
