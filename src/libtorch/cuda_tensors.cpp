// SPDX-License-Identifier: Apache-2.0
#include "libtorch/cuda_tensors.hpp"

#include <string>

#include <kolo/error.hpp>

#ifdef KOLO_TORCH_HAS_CUDA
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <kolo/cuda.hpp>
#endif

namespace kolo::libtorch {
namespace {

[[noreturn]] void refuse(std::string_view what, const at::Tensor& tensor, const char* why) {
  throw Error(ErrorCode::unsupported, std::string(what) + " is on " + tensor.device().str() + "; " + why);
}

}  // namespace

#ifdef KOLO_TORCH_HAS_CUDA

namespace {

void check_device(std::string_view what, const at::Tensor& tensor) {
  if (!tensor.is_cuda()) {
    refuse(what, tensor, "only memory of the CPU and of CUDA devices is supported");
  }
}

Stream native(const c10::cuda::CUDAStream& stream) { return Stream{stream.stream()}; }

}  // namespace

TensorView device_view(std::string_view what, const at::Tensor& tensor, DType dtype, const Shape& shape) {
  check_device(what, tensor);
  const auto index = tensor.device().index();
  return {tensor.data_ptr(), dtype, shape, Device{DeviceKind::cuda, index},
          native(c10::cuda::getCurrentCUDAStream(index))};
}

void wait_on_current_stream(Handle& handle, const at::Tensor& tensor) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(tensor.device().index());
  cuda::wait_on(handle, stream.stream());
  c10::cuda::CUDACachingAllocator::recordStream(tensor.storage().data_ptr(), stream);
}

struct Gate::Impl {
  c10::cuda::CUDAStream stream;
};

Gate::Gate(std::string_view what, const at::Tensor& tensor) {
  check_device(what, tensor);
  impl_ = std::make_unique<Impl>(Impl{c10::cuda::getStreamFromPool(/*isHighPriority=*/true, tensor.device().index())});
}

Stream Gate::stream() const { return native(impl_->stream); }

void Gate::let_pass() {
  c10::Event event(c10::DeviceType::CUDA);
  event.record(c10::cuda::getCurrentCUDAStream(impl_->stream.device_index()).unwrap());
  event.block(impl_->stream.unwrap());
}

#else

namespace {

constexpr const char* kOnlyCpu =
    "only CPU memory is supported: this build of kolo::libtorch has no CUDA part (LibTorch "
    "and Kolo must both have one)";

}  // namespace

TensorView device_view(std::string_view what, const at::Tensor& tensor, DType /*dtype*/, const Shape& /*shape*/) {
  refuse(what, tensor, kOnlyCpu);
}

void wait_on_current_stream(Handle& /*handle*/, const at::Tensor& tensor) { refuse("the tensor", tensor, kOnlyCpu); }

struct Gate::Impl {};

Gate::Gate(std::string_view what, const at::Tensor& tensor) { refuse(what, tensor, kOnlyCpu); }
Stream Gate::stream() const { return {}; }
void Gate::let_pass() {}

#endif

Gate::~Gate() = default;

}  // namespace kolo::libtorch
