// SPDX-License-Identifier: Apache-2.0
//
// A growing array whose elements keep their addresses.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <boost/container/static_vector.hpp>

namespace kolo::base {

/// Blocks of 64 elements, so that an element is found by a shift and a mask. (A std::deque's block size is not known.)
template <class T>
class StableVector {
 public:
  [[nodiscard]] T& operator[](std::size_t at) noexcept { return (*blocks_[at / kBlock])[at % kBlock]; }
  [[nodiscard]] const T& operator[](std::size_t at) const noexcept { return (*blocks_[at / kBlock])[at % kBlock]; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (size_ == blocks_.size() * kBlock) blocks_.push_back(std::make_unique<Block>());
    T& made = blocks_[size_ / kBlock]->emplace_back(std::forward<Args>(args)...);
    ++size_;
    return made;
  }

 private:
  static constexpr std::size_t kBlock = 64;
  using Block = boost::container::static_vector<T, kBlock>;

  std::vector<std::unique_ptr<Block>> blocks_;
  std::size_t size_ = 0;
};

}  // namespace kolo::base
