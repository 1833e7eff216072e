// SPDX-License-Identifier: Apache-2.0
//
// The elements behind a view, for code that computes with them on the CPU.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <kolo/error.hpp>
#include <kolo/types.hpp>

namespace kolo::optimizer {

/// Why the elements of a view cannot be computed with.
struct Objection {
  ErrorCode code = ErrorCode::ok;
  std::string reason;  ///< the end of a sentence: "is a null pointer"
};

/// unsupported unless the view is float32 or float64 in CPU memory, invalid_argument for memory that is null or not
/// aligned to its type; nothing: they can.
std::optional<Objection> objection_to(const TensorView& view);

/// Throws the objection as an `Error`, whose sentence begins with `caller` and the text that `what` makes: only then,
/// because views are checked in every step.
template <class What>
void check_computable(std::string_view caller, const What& what, const TensorView& view) {
  if (const std::optional<Objection> objection = objection_to(view))
    throw Error(objection->code, std::string(caller) + ": " + what() + ' ' + objection->reason);
}

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

/// Copies the elements to a view of as many of the same type.
void copy(const ConstTensorView& from, const TensorView& to);

/// Multiplies every element by `factor`, rounded to the element's type. The view was checked.
void scale(const TensorView& view, double factor);

/// Divides every element, and multiplies it by `factor`, as a reduction ends an average. The view was checked.
void divide(const TensorView& view, double divisor, double factor);

/// Divides every element by a power of two, or any number. Whether all were finite. The view was checked.
bool unscale(const TensorView& view, double by);

/// The sum of the elements' squares, in double. The view was checked.
double squares(const TensorView& view);

}  // namespace kolo::optimizer
