// SPDX-License-Identifier: Apache-2.0
//
// What callers' threads ask of the device's backend.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "core/element_types.hpp"
#include "data/cuda/cuda_backend.hpp"
#include "data/cuda/nccl_api.hpp"
#include "data/cuda/nccl_carrier.hpp"

namespace kolo::cuda {

int CudaBackend::bind() { return device_.choose_in_turn("kolo::cuda::bind"); }

void CudaBackend::check_usable(Device device) { device_.choose(device.index, "its first tensor"); }

void CudaBackend::check_usable(Device device, const core::Signature& signature) {
  check_usable(device);
  if (options_.staged || !core::traits_of(signature.kind).reduces) return;
  for (const core::TensorSignature& tensor : signature.tensors) {
    const bool by_min_or_max = tensor.dtype == DType::boolean && signature.op != ReduceOp::bit_xor;
    if (core::is_bitwise(signature.op) && !by_min_or_max) {
      throw Error(ErrorCode::unsupported, "NCCL has no " + std::string(to_string(signature.op)) + " of " +
                                              std::string(to_string(tensor.dtype)) +
                                              "; use KOLO_GPU_BACKEND=staged, which reduces on the CPU");
    }
    if (nccl_reduces(tensor.dtype)) continue;
    const std::string type(to_string(tensor.dtype));
    throw Error(ErrorCode::unsupported, "NCCL cannot reduce " + type +
                                            "; use a wider integer, or KOLO_GPU_BACKEND=staged, which reduces on the "
                                            "CPU");
  }
}

data::DeviceEventPtr CudaBackend::record(Device device, Stream stream) {
  KOLO_CHECK(device.index == device_.index()) << "check_usable comes first";
  const DeviceGuard guard(*device_.context());
  cuda::refuse_capture(native(stream));
  std::shared_ptr<PooledEvent> event = device_.events().take();
  event->mark_of_caller(native(stream));
  return event;
}

void CudaBackend::refuse_capture(Stream stream) const {
  const DeviceGuard guard(*device_.context());
  cuda::refuse_capture(native(stream));
}

/// By way of memory that is not pinned, because to pin it beside a collective that runs could deadlock. The streams are
/// waited for without anything of the engine's: what they wait for is moved on by its own thread.
void CudaBackend::read(Device device, Span<const Stream> streams, const std::byte* data, std::size_t bytes,
                       const Taken& taken) {
  KOLO_CHECK(device.index == device_.index()) << "check_usable comes first";
  const DeviceGuard guard(*device_.context());
  for (const Stream& stream : streams) cuda::refuse_capture(native(stream));
  for (const Stream& stream : streams) wait_for(native(stream));
  std::optional<OwnStream> own;
  const cudaStream_t stream = streams.empty() ? own.emplace().raw() : native(streams[0]);
  std::vector<std::byte> memory(std::min(bytes, kReadBytes));
  for (std::size_t at = 0; at < bytes; at += kReadBytes) {
    const std::size_t now = std::min(bytes - at, kReadBytes);
    copy_to_host(memory.data(), data + at, now, stream);
    if (!taken(memory.data(), now)) return;
  }
}

std::shared_ptr<data::DeviceRegion> CudaBackend::ask_region(std::uint16_t number, std::size_t bytes,
                                                            std::vector<int> members) {
  KOLO_CHECK(device_.is_chosen()) << "check_usable comes first";
  if (static_cast<int>(members.size()) == world_size_) members.clear();
  auto region = std::make_shared<Region>(device_.context(), number, bytes, std::move(members), memory_);
  regions_.add(region);
  return region;
}

data::DeviceUsage CudaBackend::usage() const {
  data::DeviceUsage usage = counters_.usage();
  usage.arena_bytes = regions_.bytes();
  return usage;
}

std::string CudaBackend::describe() const {
  const data::DeviceUsage used = usage();
  std::string text;
  if (!device_.describe(text)) return text;
  text += used.buffer_bytes > 0 ? ", in use: " : ", not in use yet: ";
  text += (options_.staged ? "pinned memory and the CPU" : describe_nccl()) + ", " + std::to_string(options_.buffers) +
          " buffers of " + std::to_string(options_.buffer_bytes >> 10) + " KiB";
  if (!options_.staged) text += ", tensors from " + std::to_string(options_.direct_bytes >> 10) + " KiB in place";
  if (used.arena_bytes > 0) text += ", arenas of " + std::to_string(used.arena_bytes >> 10) + " KiB";
  return text;
}

}  // namespace kolo::cuda
