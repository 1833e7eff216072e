// SPDX-License-Identifier: Apache-2.0
#include <kolo/dlpack.h>

#include <algorithm>
#include <string>

#include "c/arguments.hpp"
#include "c/guard.hpp"

namespace kolo::c {
namespace {

// DLPack's numbers.
constexpr std::int32_t kDlCpu = 1, kDlCuda = 2, kDlPinned = 3;
constexpr std::uint8_t kDlInt = 0, kDlUint = 1, kDlFloat = 2, kDlBfloat = 4, kDlBool = 6;

struct DlType {
  std::uint8_t code, bits;
};
/// By the number of the kolo_dtype.
constexpr DlType kDlTypes[kDTypeCount] = {{kDlBool, 8},    {kDlInt, 8},    {kDlInt, 16},  {kDlInt, 32},  {kDlInt, 64},
                                          {kDlUint, 8},    {kDlUint, 16},  {kDlUint, 32}, {kDlUint, 64}, {kDlFloat, 16},
                                          {kDlBfloat, 16}, {kDlFloat, 32}, {kDlFloat, 64}};

std::int32_t dtype_from(const kolo_dl_tensor& from) {
  if (from.dtype.lanes != 1) {
    refuse("the elements of this DLPack tensor are vectors of " + std::to_string(from.dtype.lanes) +
           ": give one of single elements");
  }
  const auto* const found = std::find_if(std::begin(kDlTypes), std::end(kDlTypes), [&](const DlType& type) {
    return type.code == from.dtype.code && type.bits == from.dtype.bits;
  });
  if (found == std::end(kDlTypes)) {
    throw Error(ErrorCode::unsupported, "Kolo has no elements of DLPack's type " + std::to_string(from.dtype.code) +
                                            " with " + std::to_string(from.dtype.bits) +
                                            " bits: convert the tensor to one of kolo_dtype");
  }
  return static_cast<std::int32_t>(found - std::begin(kDlTypes));
}

std::int32_t device_from(const kolo_dl_tensor& from) {
  const auto type = static_cast<std::int32_t>(from.device.device_type);
  if (type == kDlCpu || type == kDlPinned) return KOLO_CPU;
  if (type == kDlCuda) return KOLO_CUDA;
  throw Error(ErrorCode::unsupported, "this DLPack tensor lies on a device of type " + std::to_string(type) +
                                          ": Kolo knows 1 (CPU), 2 (CUDA) and 3 (the host's pinned memory)");
}

void check_contiguous(const kolo_dl_tensor& from, const Shape& shape) {
  if (from.strides == nullptr || shape.elements() == 0) return;
  std::int64_t stride = 1;
  for (std::size_t i = shape.rank(); i-- > 0;) {
    if (shape[i] != 1 && from.strides[i] != stride) {
      refuse("this DLPack tensor is not contiguous: dimension " + std::to_string(i) + " has the stride " +
             std::to_string(from.strides[i]) + " instead of " + std::to_string(stride) + "; make a contiguous copy");
    }
    stride *= shape[i];
  }
}

}  // namespace
}  // namespace kolo::c

using namespace kolo::c;

kolo_status kolo_tensor_from_dlpack(const kolo_dl_tensor* from, kolo_tensor* to) {
  return guarded([&] {
    const kolo_dl_tensor& its = given(from, "the DLPack tensor");
    kolo_tensor& place = given(to, "the place for the tensor");
    if (its.ndim < 0 || its.ndim > KOLO_MAX_DIMS) {
      refuse("this DLPack tensor has " + std::to_string(its.ndim) + " dimensions: Kolo's have 0 to 8");
    }
    const auto extents = given_list(its.shape, static_cast<std::size_t>(its.ndim), "the DLPack tensor's shape");
    const kolo::Shape shape(extents.data(), extents.size());
    check_contiguous(its, shape);
    kolo_tensor made = {};
    made.dtype = dtype_from(its);
    made.dims = its.ndim;
    std::copy(extents.begin(), extents.end(), made.shape);
    made.device = device_from(its);
    made.index = made.device == KOLO_CUDA ? its.device.device_id : 0;
    if (its.data != nullptr) made.data = static_cast<char*>(its.data) + its.byte_offset;
    place = made;
  });
}

kolo_status kolo_tensor_to_dlpack(const kolo_tensor* from, int64_t* shape, int64_t* strides, kolo_dl_tensor* to) {
  return guarded([&] {
    const kolo::TensorView view = given_view(from, "the tensor");
    int64_t& first_extent = given(shape, "the room for the shape");
    int64_t& first_stride = given(strides, "the room for the strides");
    kolo_dl_tensor& place = given(to, "the place for the DLPack tensor");
    std::int64_t stride = 1;
    for (std::size_t i = view.shape().rank(); i-- > 0;) {
      shape[i] = view.shape()[i];
      strides[i] = stride;
      stride *= std::max<std::int64_t>(shape[i], 1);
    }
    place.data = view.data();
    place.device = {view.device().kind == kolo::DeviceKind::cuda ? kDlCuda : kDlCpu, view.device().index};
    place.ndim = from->dims;
    place.dtype = {kDlTypes[from->dtype].code, kDlTypes[from->dtype].bits, 1};
    place.shape = &first_extent;
    place.strides = &first_stride;
    place.byte_offset = 0;
  });
}
