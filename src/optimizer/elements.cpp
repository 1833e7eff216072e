// SPDX-License-Identifier: Apache-2.0
#include "optimizer/elements.hpp"

#include <cstdint>
#include <cstring>

#include <kolo/error.hpp>

namespace kolo::optimizer {

void check_computable(std::string_view caller, std::string_view what, const TensorView& view) {
  const std::string begin = std::string(caller) + ": " + std::string(what) + ' ';
  if (view.device() != cpu()) {
    throw Error(ErrorCode::unsupported, begin + "is on " + to_string(view.device()) + "; only CPU memory is supported");
  }
  if (view.dtype() != DType::float32 && view.dtype() != DType::float64) {
    throw Error(ErrorCode::unsupported,
                begin + "is " + std::string(to_string(view.dtype())) + "; only float32 and float64 are supported");
  }
  if (view.elements() == 0) {
    return;
  }
  if (view.data() == nullptr) {
    throw Error(ErrorCode::invalid_argument, begin + "is a null pointer");
  }
  if (reinterpret_cast<std::uintptr_t>(view.data()) % size_of(view.dtype()) != 0) {
    throw Error(ErrorCode::invalid_argument, begin + "is not aligned to " + std::to_string(size_of(view.dtype())) +
                                                 " bytes, the size of its " + std::string(to_string(view.dtype())));
  }
}

void fill_zero(const TensorView& view) {
  if (view.elements() != 0) {
    std::memset(view.data(), 0, static_cast<std::size_t>(view.bytes()));
  }
}

void copy(const TensorView& from, Tensor& to) {
  if (to.data() == nullptr) {
    to = Tensor(from.dtype(), from.shape());
  }
  if (from.elements() != 0) {
    std::memcpy(to.data(), from.data(), static_cast<std::size_t>(from.bytes()));
  }
}

void copy_back(const Tensor& from, const TensorView& to) {
  if (to.elements() != 0) {
    std::memcpy(to.data(), from.data(), static_cast<std::size_t>(to.bytes()));
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

}  // namespace kolo::optimizer
