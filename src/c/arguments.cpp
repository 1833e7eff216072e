// SPDX-License-Identifier: Apache-2.0
#include "c/arguments.hpp"

#include <cmath>

#include <kolo/detail/duration.hpp>

namespace kolo::c {

std::string_view given_name(const char* name, std::string_view what) { return &given(name, what); }

DType dtype_of(std::int32_t dtype) {
  if (dtype < 0 || dtype >= kDTypeCount) {
    refuse("there is no dtype " + std::to_string(dtype) + ": give one of kolo_dtype, such as KOLO_FLOAT32");
  }
  return static_cast<DType>(dtype);
}

Device device_of(std::int32_t device, std::int32_t index) {
  if (device != KOLO_CPU && device != KOLO_CUDA) {
    refuse("there is no device " + std::to_string(device) + ": give KOLO_CPU or KOLO_CUDA");
  }
  if (index < 0 || (device == KOLO_CPU && index != 0)) {
    refuse("the device's index is " + std::to_string(index) + ": give CUDA's number of it, or 0 for the CPU");
  }
  return {static_cast<DeviceKind>(device), index};
}

TensorView view_of(const kolo_tensor& tensor) {
  if (tensor.dims < 0 || tensor.dims > KOLO_MAX_DIMS) {
    refuse("a tensor has " + std::to_string(tensor.dims) + " dimensions: give 0 to 8");
  }
  const Device device = device_of(tensor.device, tensor.index);
  std::optional<Stream> stream;
  if (device.kind == DeviceKind::cuda) {
    if (tensor.stream != KOLO_NO_STREAM) stream = Stream{tensor.stream};
  } else if (tensor.stream != nullptr) {
    refuse("a tensor of the CPU has a stream: give NULL, or the device on which the tensor lies");
  }
  return {tensor.data, dtype_of(tensor.dtype), Shape(tensor.shape, static_cast<std::size_t>(tensor.dims)), device,
          stream};
}

std::optional<TensorView> optional_view(const kolo_tensor* tensor) {
  if (tensor == nullptr) return std::nullopt;
  return view_of(*tensor);
}

std::vector<NamedView> views_of(const kolo_named_tensor* tensors, std::size_t count) {
  std::vector<NamedView> views;
  for (const kolo_named_tensor& one : given_list(tensors, count, "the list of tensors")) {
    views.push_back({std::string(given_name(one.name, "a tensor's name")), view_of(one.tensor)});
  }
  return views;
}

kolo_tensor tensor_of(const void* data, DType dtype, const Shape& shape) noexcept {
  kolo_tensor tensor = {};
  tensor.data = const_cast<void*>(data);
  tensor.dtype = static_cast<std::int32_t>(dtype);
  for (const std::int64_t extent : shape) tensor.shape[tensor.dims++] = extent;
  return tensor;
}

std::optional<std::chrono::nanoseconds> timeout_of(double seconds) {
  if (seconds < 0) return std::nullopt;
  if (std::isnan(seconds)) refuse("the timeout is not a number: give seconds, or a negative number for the default");
  return detail::to_nanoseconds(std::chrono::duration<double>(seconds));
}

void check_size(std::size_t size, std::size_t first, std::size_t now, std::string_view init) {
  if (size >= first && size <= now) return;
  const std::string what = "the struct's size is " + std::to_string(size);
  if (size < first) refuse(what + ": start from " + std::string(init));
  refuse(what + ", but this library (" + kolo_version() + ") knows " + std::to_string(now) +
         " bytes of it: run the program with the library of its header, or a newer one");
}

namespace {
void check_reserved(std::int32_t reserved, std::string_view init) {
  if (reserved != 0) refuse("the options' field `reserved` is not 0: start from " + std::string(init));
}
}  // namespace

kolo_allreduce_options checked_options(const kolo_allreduce_options* options) {
  const auto checked =
      options_of(options, kolo_allreduce_options KOLO_ALLREDUCE_OPTIONS_INIT, 48, "KOLO_ALLREDUCE_OPTIONS_INIT");
  if (checked.op < KOLO_SUM || checked.op > KOLO_BIT_XOR) {
    refuse("there is no operation " + std::to_string(checked.op) + ": give one of kolo_op, such as KOLO_SUM");
  }
  check_reserved(checked.reserved, "KOLO_ALLREDUCE_OPTIONS_INIT");
  return checked;
}

kolo_options checked_options(const kolo_options* options) {
  const auto checked = options_of(options, kolo_options KOLO_OPTIONS_INIT, 24, "KOLO_OPTIONS_INIT");
  check_reserved(checked.reserved, "KOLO_OPTIONS_INIT");
  return checked;
}

static_assert(KOLO_BOOL == static_cast<int>(DType::boolean) && KOLO_INT8 == static_cast<int>(DType::int8) &&
              KOLO_INT16 == static_cast<int>(DType::int16) && KOLO_INT32 == static_cast<int>(DType::int32) &&
              KOLO_INT64 == static_cast<int>(DType::int64) && KOLO_UINT8 == static_cast<int>(DType::uint8) &&
              KOLO_UINT16 == static_cast<int>(DType::uint16) && KOLO_UINT32 == static_cast<int>(DType::uint32) &&
              KOLO_UINT64 == static_cast<int>(DType::uint64) && KOLO_FLOAT16 == static_cast<int>(DType::float16) &&
              KOLO_BFLOAT16 == static_cast<int>(DType::bfloat16) && KOLO_FLOAT32 == static_cast<int>(DType::float32) &&
              KOLO_FLOAT64 == static_cast<int>(DType::float64) && KOLO_FLOAT64 + 1 == kDTypeCount);
static_assert(KOLO_SUM == static_cast<int>(ReduceOp::sum) && KOLO_AVERAGE == static_cast<int>(ReduceOp::average) &&
              KOLO_MIN == static_cast<int>(ReduceOp::min) && KOLO_MAX == static_cast<int>(ReduceOp::max) &&
              KOLO_PRODUCT == static_cast<int>(ReduceOp::product) &&
              KOLO_BIT_AND == static_cast<int>(ReduceOp::bit_and) &&
              KOLO_BIT_OR == static_cast<int>(ReduceOp::bit_or) && KOLO_BIT_XOR == static_cast<int>(ReduceOp::bit_xor));
static_assert(KOLO_CPU == static_cast<int>(DeviceKind::cpu) && KOLO_CUDA == static_cast<int>(DeviceKind::cuda));
static_assert(KOLO_MAX_DIMS == Shape::kMaxRank);

}  // namespace kolo::c

size_t kolo_dtype_size(int32_t dtype) {
  return dtype < 0 || dtype >= kolo::kDTypeCount ? 0 : kolo::size_of(static_cast<kolo::DType>(dtype));
}
