// SPDX-License-Identifier: Apache-2.0
//
// The elements behind a view, for code that computes with them on the CPU.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <kolo/types.hpp>

namespace kolo::optimizer {

/// Throws `Error`, whose sentence begins with `caller` and `what`: unsupported unless the view is float32 or float64 in
/// CPU memory, invalid_argument for memory that is null or not aligned to its type.
void check_computable(std::string_view caller, std::string_view what, const TensorView& view);

/// The elements as T, which must be the view's type.
template <class T>
Span<T> elements(const TensorView& view) {
  return {static_cast<T*>(view.data()), static_cast<std::size_t>(view.elements())};
}

/// Calls `body` with a value of the view's type, 0.0F or 0.0. The view was checked.
template <class Body>
void with_type(const TensorView& view, const Body& body) {
  if (view.dtype() == DType::float32) {
    body(0.0F);
  } else {
    body(0.0);
  }
}

/// Sets every element to zero, whatever its type.
void fill_zero(const TensorView& view);

/// Copies the elements to a tensor beside them, which is made the first time; and back.
void copy(const TensorView& from, Tensor& to);
void copy_back(const Tensor& from, const TensorView& to);

/// Multiplies every element by `factor`, rounded to the element's type. The view was checked.
void scale(const TensorView& view, double factor);

}  // namespace kolo::optimizer
