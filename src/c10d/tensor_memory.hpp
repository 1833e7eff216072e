// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's tensors as memory that Kolo takes: one piece without gaps, of a type that Kolo has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <kolo/types.hpp>

#include "c10d/versions.hpp"

namespace kolo::c10d {

/// How the elements of a PyTorch type travel.
struct Elements {
  DType dtype;
  std::int64_t each;  ///< elements of Kolo's for one of PyTorch's: 2 for complex numbers
};
/// For calls that only move them: any type, in bytes where Kolo does not have it.
[[nodiscard]] Elements moved_elements(at::ScalarType type);

/// How one piece of memory is seen: `count` rows of `length` elements of PyTorch's.
struct Rows {
  std::int64_t count;
  std::int64_t length;
};

/// What is computed, as PyTorch says it.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
};
[[nodiscard]] Reduction reduction_of(const std::string& call, const ::c10d::ReduceOp& op);
/// For calls that compute with them. Throws NotImplementedError for types and operations that Kolo does not have.
[[nodiscard]] Elements reduced_elements(const std::string& call, at::ScalarType type, ReduceOp op);
/// Whether it is an average of whole numbers: that is their sum, which is divided afterwards.
[[nodiscard]] bool is_average_of_integers(at::ScalarType type, ReduceOp op) noexcept;

/// Tensors that a call takes as one piece of memory, one after another: where they lie, if they lie so, else in a copy.
/// Holds references to the tensors.
class Packed {
 public:
  /// No tensors.
  Packed() = default;
  /// To read. Throws (naming `call`) ValueError for tensors of different types or devices, NotImplementedError for
  /// those that are not plain memory of the CPU, or of a CUDA device in a build that takes these. A tensor of a CUDA
  /// device is read and written by work of PyTorch's current stream, now and when `view` is called.
  [[nodiscard]] static Packed to_read(const std::string& call, std::vector<at::Tensor> tensors);
  /// To write: `unpack` then brings the results into the tensors.
  [[nodiscard]] static Packed to_write(const std::string& call, std::vector<at::Tensor> tensors);
  /// To read and write.
  [[nodiscard]] static Packed in_place(const std::string& call, const at::Tensor& tensor);

  /// Writes the tensor's elements, as many as these have, into what a call is given.
  void fill_from(const at::Tensor& tensor) const;
  /// Copies from the copy into the tensors, if there is one; autograd takes no notice of that, as of anything that a
  /// backend writes.
  void unpack() const;
  /// Before `unpack`: divides whole numbers, and rounds towards zero.
  void divide_by(int divisor) const;
  [[nodiscard]] bool needs_unpacking() const noexcept { return copy_.defined(); }

  [[nodiscard]] TensorView view(const Elements& elements, const Rows& rows) const;
  /// In one dimension.
  [[nodiscard]] TensorView view(const Elements& elements) const;

  [[nodiscard]] const std::vector<at::Tensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] bool empty() const noexcept { return tensors_.empty(); }
  [[nodiscard]] at::ScalarType type() const { return tensors_.front().scalar_type(); }
  [[nodiscard]] at::Device device() const { return tensors_.front().device(); }
  /// Calls `visit` with each tensor, and the copy if there is one.
  template <class Visit>
  void each_memory(const Visit& visit) const {
    for (const at::Tensor& tensor : tensors_) visit(tensor);
    if (copy_.defined()) visit(copy_);
  }
  /// Elements of PyTorch's.
  [[nodiscard]] std::int64_t numel() const noexcept { return numel_; }
  /// Whether all tensors have as many elements.
  [[nodiscard]] bool is_even() const;

 private:
  Packed(const std::string& call, std::vector<at::Tensor> tensors);
  [[nodiscard]] void* data() const;
  [[nodiscard]] TensorView view(DType dtype, const Shape& shape) const;
  [[nodiscard]] bool lies_in_one_piece() const;
  void copy_in();

  std::vector<at::Tensor> tensors_;
  at::Tensor copy_;  // undefined: the tensors lie so themselves
  std::int64_t numel_ = 0;
};

}  // namespace kolo::c10d
