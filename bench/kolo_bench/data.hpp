// SPDX-License-Identifier: Apache-2.0
//
// Data whose reductions are exact in every type, and the check against what must come out.
//
// Rank r gives (3 i + 5 r) mod 8 at element i (booleans: whether that is odd); for products 2 where i mod n == r, and
// else 1. Sums over up to 32 ranks stay below 256, which even a bfloat16 holds exactly. An average is one rounded
// division; of 16-bit floats on a device it is rounded more often.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <kolo/gradient_arena.hpp>
#include <kolo/types.hpp>

#include "device.hpp"

namespace kolo_bench {

/// Memory for elements of any type, 64-byte aligned: of its own, in an arena, or on a device; it keeps those alive.
class Buffer {
 public:
  Buffer(kolo::DType dtype, std::int64_t elements)
      : own_(dtype, kolo::Shape{elements}), view_(own_.data(), dtype, kolo::Shape{elements}) {}
  /// In an arena, which lies on the device, unless that is null.
  Buffer(kolo::DType dtype, std::int64_t elements, std::shared_ptr<kolo::GradientArena> arena,
         std::shared_ptr<Device> device)
      : arena_(std::move(arena)), device_(std::move(device)),
        view_(device_ ? arena_->allocate(dtype, kolo::Shape{elements}, device_->stream())
                      : arena_->allocate(dtype, kolo::Shape{elements})) {}
  /// On the device, unless that is null.
  Buffer(kolo::DType dtype, std::int64_t elements, std::shared_ptr<Device> device);
  [[nodiscard]] kolo::TensorView view() const { return view_; }
  /// `count` elements from `at` on.
  [[nodiscard]] kolo::TensorView part(std::int64_t at, std::int64_t count) const;
  [[nodiscard]] void* data() const { return view_.data(); }
  /// Null: the host reaches the elements.
  [[nodiscard]] Device* device() const { return device_.get(); }
  [[nodiscard]] std::int64_t elements() const { return view_.elements(); }
  [[nodiscard]] kolo::DType dtype() const { return view_.dtype(); }
  [[nodiscard]] std::int64_t bytes() const { return view_.bytes(); }
  /// Bytes that no result has.
  void poison();

 private:
  kolo::Tensor own_;
  std::shared_ptr<kolo::GradientArena> arena_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<void> memory_;  // the device's
  kolo::TensorView view_;
};

/// On the device, unless that is null. Collective.
inline std::shared_ptr<kolo::GradientArena> make_arena(std::size_t bytes, const std::shared_ptr<Device>& device) {
  return device ? std::make_shared<kolo::GradientArena>(bytes, device->place())
                : std::make_shared<kolo::GradientArena>(bytes);
}

/// What `rank` of `ranks` gives. `first`: the number of the buffer's first element in the whole.
void fill_input(Buffer& buffer, kolo::ReduceOp op, int rank, int ranks, std::int64_t first = 0);
/// Elements that are not the exact reduction over `ranks` ranks.
std::int64_t count_wrong_reduction(Buffer& buffer, kolo::ReduceOp op, int ranks);
/// The same for `count` elements at `at` in the buffer, of which the first is number `first` in the whole.
std::int64_t count_wrong_reduction(Buffer& buffer, kolo::ReduceOp op, int ranks, std::int64_t at, std::int64_t count,
                                   std::int64_t first);
/// Writes what `count_wrong_copy` wants of `rank` into a part of the buffer.
void fill_part(Buffer& buffer, int rank, std::int64_t first, std::int64_t count);
/// Elements that are not what `rank` gave; `first` and `count` say which part of the buffer.
std::int64_t count_wrong_copy(Buffer& buffer, int rank, std::int64_t first, std::int64_t count);

}  // namespace kolo_bench
