// SPDX-License-Identifier: Apache-2.0
#include "optimizer/elements.hpp"

#include <cstdint>
#include <cstring>

#include <kolo/error.hpp>

namespace kolo::optimizer {

std::optional<Objection> objection_to(const TensorView& view) {
  if (view.device() != cpu()) {
    return Objection{ErrorCode::unsupported, "is on " + to_string(view.device()) + "; only CPU memory is supported"};
  }
  if (view.dtype() != DType::float32 && view.dtype() != DType::float64) {
    return Objection{ErrorCode::unsupported,
                     "is " + std::string(to_string(view.dtype())) + "; only float32 and float64 are supported"};
  }
  if (view.elements() == 0) {
    return std::nullopt;
  }
  if (view.data() == nullptr) {
    return Objection{ErrorCode::invalid_argument, "is a null pointer"};
  }
  if (reinterpret_cast<std::uintptr_t>(view.data()) % size_of(view.dtype()) != 0) {
    return Objection{ErrorCode::invalid_argument, "is not aligned to " + std::to_string(size_of(view.dtype())) +
                                                      " bytes, the size of its " +
                                                      std::string(to_string(view.dtype()))};
  }
  return std::nullopt;
}

void fill_zero(const TensorView& view) {
  if (view.elements() != 0) {
    std::memset(view.data(), 0, static_cast<std::size_t>(view.bytes()));
  }
}

void copy(const ConstTensorView& from, const TensorView& to) {
  if (from.elements() != 0) {
    std::memcpy(to.data(), from.data(), static_cast<std::size_t>(from.bytes()));
  }
}

void scale(const TensorView& view, double factor) {
  with_type(view, [&](auto zero) {
    using T = decltype(zero);
    const T by = static_cast<T>(factor);
    for (T& element : elements<T>(view)) {
      element *= by;
    }
  });
}

void divide(const TensorView& view, double divisor, double factor) {
  with_type(view, [&](auto zero) {
    using T = decltype(zero);
    const T by = static_cast<T>(divisor);
    const T times = static_cast<T>(factor);
    for (T& element : elements<T>(view)) {
      element = element / by * times;
    }
  });
}

bool unscale(const TensorView& view, double by) {
  bool is_finite = true;
  with_type(view, [&](auto zero) {
    using T = decltype(zero);
    const T divisor = static_cast<T>(by);
    T test = 0;  // stays zero, or becomes no number
    for (T& element : elements<T>(view)) {
      test += element * T{0};
      element /= divisor;
    }
    is_finite = test == 0;
  });
  return is_finite;
}

double squares(const TensorView& view) {
  double sum = 0;
  with_type(view, [&](auto zero) {
    using T = decltype(zero);
    for (const T element : elements<T>(view)) {
      sum += static_cast<double>(element) * static_cast<double>(element);
    }
  });
  return sum;
}

}  // namespace kolo::optimizer
