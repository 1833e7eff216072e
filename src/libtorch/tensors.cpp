// SPDX-License-Identifier: Apache-2.0
#include "libtorch/tensors.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include <kolo/error.hpp>
#include <kolo/objects.hpp>

#include "libtorch/cuda_tensors.hpp"

namespace kolo::libtorch {
namespace {

constexpr std::pair<at::ScalarType, DType> kTypes[] = {{at::kBool, DType::boolean},
                                                       {at::kByte, DType::uint8},
                                                       {at::kChar, DType::int8},
                                                       {at::kShort, DType::int16},
                                                       {at::kInt, DType::int32},
                                                       {at::kLong, DType::int64},
                                                       {at::kHalf, DType::float16},
                                                       {at::kBFloat16, DType::bfloat16},
                                                       {at::kFloat, DType::float32},
                                                       {at::kDouble, DType::float64},
                                                       {at::kComplexFloat, DType::float32},
                                                       {at::kComplexDouble, DType::float64}};

std::string list(c10::IntArrayRef numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  }
  return text + "]";
}

// The extents by falling stride. Extents of 1 have any stride and stay where they are among their neighbours.
std::vector<std::int64_t> extents_in_memory(const at::Tensor& tensor) {
  std::vector<std::int64_t> extents = tensor.sizes().vec();
  if (!tensor.is_contiguous()) {
    std::vector<std::size_t> order(extents.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return tensor.stride(static_cast<std::int64_t>(a)) > tensor.stride(static_cast<std::int64_t>(b));
    });
    for (std::size_t i = 0; i < order.size(); ++i) {
      extents[i] = tensor.size(static_cast<std::int64_t>(order[i]));
    }
  }
  if (tensor.is_complex()) {
    extents.push_back(2);
  }
  if (extents.size() > Shape::kMaxRank) {  // more than a Shape takes: the first ones as one
    const auto last = extents.end() - static_cast<std::ptrdiff_t>(Shape::kMaxRank - 1);
    const std::int64_t first = std::accumulate(extents.begin(), last, std::int64_t{1}, std::multiplies<>());
    extents.erase(extents.begin(), last);
    extents.insert(extents.begin(), first);
  }
  return extents;
}

}  // namespace

DType dtype_of(std::string_view what, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
    throw Error(ErrorCode::unsupported,
                std::string(what) + " is sparse, quantized or otherwise not plain memory; only dense tensors are "
                                    "supported");
  }
  for (const auto& [theirs, ours] : kTypes) {
    if (theirs == tensor.scalar_type()) return ours;
  }
  throw Error(ErrorCode::unsupported, std::string(what) + " is of LibTorch's type " +
                                          c10::toString(tensor.scalar_type()) + ", which Kolo has none for");
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [theirs, ours] : kTypes) {
    if (ours == dtype) return theirs;
  }
  throw Error(ErrorCode::unsupported, "LibTorch has no tensors of " + std::string(to_string(dtype)));
}

std::string describe(const at::Tensor& tensor) {
  std::string text = std::string(tensor.is_complex() ? "complex " : "") +
                     std::string(to_string(dtype_of("a tensor", tensor))) + ' ' + list(tensor.sizes());
  if (!tensor.is_contiguous()) {
    text += " strides " + list(tensor.strides());
  }
  return tensor.is_cpu() ? text : text + ' ' + c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true);
}

TensorView memory_view(std::string_view what, const at::Tensor& tensor) {
  const DType dtype = dtype_of(what, tensor);
  if (!tensor.is_non_overlapping_and_dense()) {
    throw Error(ErrorCode::invalid_argument, std::string(what) + " has gaps in its memory (sizes " +
                                                 list(tensor.sizes()) + ", strides " + list(tensor.strides()) +
                                                 "); contiguous() makes one without");
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(what) + " is the " + (tensor.is_conj() ? "conjugate" : "negative") +
                    " of what its memory has; " + (tensor.is_conj() ? "resolve_conj()" : "resolve_neg()") +
                    " makes one that is not");
  }
  const Shape shape(extents_in_memory(tensor));
  if (!tensor.is_cpu()) {
    return device_view(what, tensor, dtype, shape);
  }
  return {tensor.data_ptr(), dtype, shape};
}

at::Tensor plain(const at::Tensor& tensor) { return tensor.detach().resolve_conj().resolve_neg().contiguous(); }

void mark_changed(const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }

std::string on_root(const Group& group, std::string_view caller, int root, ErrorCode code,
                    const std::function<std::string()>& body) {
  std::string outcome;  // a letter for how it went, and the result or the error
  if (rank(group) == root) {
    try {
      outcome = 'y' + body();
    } catch (const Error& error) {
      outcome = 'n' + error.status().message();
    } catch (const std::bad_alloc& error) {
      outcome = std::string("m") + error.what();
    } catch (const std::exception& error) {
      outcome = std::string("n") + error.what();
    }
  }
  outcome = broadcast_bytes(group, outcome, root);
  if (outcome.front() != 'y') {
    throw Error(outcome.front() == 'm' ? ErrorCode::out_of_memory : code,
                std::string(caller) + ": rank " + std::to_string(root) + ": " + outcome.substr(1));
  }
  return outcome.substr(1);
}

}  // namespace kolo::libtorch
