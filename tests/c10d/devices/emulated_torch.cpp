// SPDX-License-Identifier: Apache-2.0
#include "tests/c10d/devices/emulated_torch.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#include <c10/core/Allocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "tests/emulated_cuda/emulator.hpp"

namespace kolo::c10d::test {
namespace {

constexpr int kMostDevices = 8;

void ok(cudaError_t result) { TORCH_CHECK(result == cudaSuccess, cudaGetErrorString(result)); }

int current_device() {
  int device = 0;
  ok(cudaGetDevice(&device));
  return device;
}

class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { ok(cudaSetDevice(device)); }
  ~OnDevice() { cudaSetDevice(before_); }

 private:
  const int before_;
};

struct Memory {
  void* data = nullptr;
  std::size_t bytes = 0;
  int device = 0;
  cudaStream_t stream = nullptr;
  std::set<cudaStream_t> also_used_on;
};

struct Machine {
  std::mutex mutex;
  std::uint64_t generation = 0;
  std::array<std::vector<cudaStream_t>, kMostDevices> pool;
  std::array<std::size_t, kMostDevices> next{};
  std::map<void*, Memory> memory;
};
Machine& machine() {
  static auto* const the_machine = new Machine;
  return *the_machine;
}

struct Current {
  std::uint64_t generation = 0;
  std::array<c10::StreamId, kMostDevices> streams{};
};
Current& current_of_thread() {
  static thread_local Current streams;
  if (streams.generation != machine().generation) streams = {machine().generation, {}};
  return streams;
}

c10::Stream stream_of(int device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)), id);
}

cudaStream_t stream_from_pool(int device) {
  constexpr std::size_t kInPool = 4;
  const std::lock_guard<std::mutex> lock(machine().mutex);
  auto& pool = machine().pool[static_cast<std::size_t>(device)];
  if (pool.size() < kInPool) {
    const OnDevice there(device);
    ok(cudaStreamCreateWithFlags(&pool.emplace_back(), cudaStreamNonBlocking));
    return pool.back();
  }
  return pool[machine().next[static_cast<std::size_t>(device)]++ % kInPool];
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {c10::kCUDA, static_cast<c10::DeviceIndex>(current_device())}; }
  void setDevice(c10::Device device) const override { ok(cudaSetDevice(device.index())); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { cudaSetDevice(device.index()); }
  c10::Stream getStream(c10::Device device) const override {
    const int index = device.has_index() ? device.index() : current_device();
    return stream_of(index, current_of_thread().streams[static_cast<std::size_t>(index)]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(device.index(), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream_of(device.index(), reinterpret_cast<c10::StreamId>(stream_from_pool(device.index())));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto& current = current_of_thread().streams[static_cast<std::size_t>(stream.device_index())];
    return stream_of(stream.device_index(), std::exchange(current, stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return native(stream); }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    const OnDevice there(stream.device_index());
    if (*event == nullptr) {
      cudaEvent_t made = nullptr;
      ok(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
      *event = made;
    }
    ok(cudaEventRecord(static_cast<cudaEvent_t>(*event), native(stream)));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) ok(cudaStreamWaitEvent(native(stream), static_cast<cudaEvent_t>(event), 0));
  }
  bool queryEvent(void* event) const override {
    const cudaError_t result = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (result != cudaErrorNotReady) ok(result);
    return result == cudaSuccess;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    int devices = 0;
    cudaGetDeviceCount(&devices);
    return static_cast<c10::DeviceIndex>(devices);
  }
  bool queryStream(const c10::Stream& stream) const override { return cudaStreamQuery(native(stream)) == cudaSuccess; }
  void synchronizeStream(const c10::Stream& stream) const override { ok(cudaStreamSynchronize(native(stream))); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    const std::lock_guard<std::mutex> lock(machine().mutex);
    const auto found = machine().memory.find(data.get());
    if (found != machine().memory.end()) found->second.also_used_on.insert(native(stream));
  }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

/// What the memory's next owner would do, on the stream that it was allocated on.
void free_memory(void* data) {
  Memory memory;
  {
    const std::lock_guard<std::mutex> lock(machine().mutex);
    const auto found = machine().memory.find(data);
    if (found == machine().memory.end()) return;  // of an earlier machine
    memory = found->second;
    machine().memory.erase(found);
  }
  const OnDevice there(memory.device);
  emulated::acquire_all();  // who frees it may have heard of an operation's end from a handle
  for (cudaStream_t stream : memory.also_used_on) {
    if (stream == memory.stream) continue;
    cudaEvent_t event = nullptr;
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ok(cudaEventRecord(event, stream));
    ok(cudaStreamWaitEvent(memory.stream, event, 0));
    ok(cudaEventDestroy(event));
  }
  ok(cudaMemsetAsync(memory.data, 0xee, memory.bytes, memory.stream));
}

class Memories final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(current_device()));
    if (bytes == 0) return {nullptr, device};
    Memory memory{nullptr, bytes, device.index(), current(), {}};
    ok(cudaMalloc(&memory.data, bytes));
    const std::lock_guard<std::mutex> lock(machine().mutex);
    machine().memory[memory.data] = memory;
    return {memory.data, memory.data, &free_memory, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    ok(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, current()));
  }
};

Memories& memories() {
  static Memories the_memories;
  return the_memories;
}

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const OnDevice there(device && device->has_index() ? device->index() : current_device());
  return at::detail::empty_generic(sizes, &memories(), kKeys, type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const OnDevice there(device && device->has_index() ? device->index() : current_device());
  return at::detail::empty_strided_generic(sizes, strides, &memories(), kKeys, type.value_or(at::kFloat));
}

/// Where element `flat` of the tensor lies.
char* element(const at::Tensor& tensor, std::int64_t flat) {
  std::int64_t offset = 0;
  for (std::int64_t d = tensor.dim(); d-- > 0; flat /= tensor.size(d))
    offset += flat % tensor.size(d) * tensor.stride(d);
  return static_cast<char*>(tensor.data_ptr()) + offset * static_cast<std::int64_t>(tensor.element_size());
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool) {
  TORCH_CHECK(to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes(), "no conversion is emulated");
  const bool at_once = to.is_contiguous() && from.is_contiguous();
  const std::size_t bytes = at_once ? to.nbytes() : to.element_size();
  for (std::int64_t i = 0; i < (at_once ? std::min<std::int64_t>(to.numel(), 1) : to.numel()); ++i) {
    ok(cudaMemcpyAsync(element(to, i), element(from, i), bytes, cudaMemcpyDefault, current()));
  }
  if (to.is_cpu()) ok(cudaStreamSynchronize(current()));
  return to;
}

at::Tensor cat(const at::ITensorListRef& tensors, std::int64_t) {
  std::int64_t total = 0;
  std::optional<at::TensorOptions> options;
  for (const at::Tensor& tensor : tensors) {
    total += tensor.numel();
    options = tensor.options();
  }
  at::Tensor all = at::empty({total}, options.value());
  std::int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    all.narrow(0, at, tensor.numel()).copy_(tensor);
    at += tensor.numel();
  }
  return all;
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("copy_", &copy);
  library.impl("cat", &cat);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  library.impl("_reshape_alias", &at::native::_reshape_alias);
}

}  // namespace

void reset_torch() {
  const std::lock_guard<std::mutex> lock(machine().mutex);
  ++machine().generation;
  for (auto& pool : machine().pool) pool.clear();
  machine().memory.clear();
}

cudaStream_t native(const c10::Stream& stream) { return reinterpret_cast<cudaStream_t>(stream.id()); }

c10::Stream new_stream(int device) {
  const OnDevice there(device);
  cudaStream_t stream = nullptr;
  ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream_of(device, reinterpret_cast<c10::StreamId>(stream));
}

cudaStream_t current() {
  return reinterpret_cast<cudaStream_t>(current_of_thread().streams[static_cast<std::size_t>(current_device())]);
}

at::Tensor on_device(const at::Tensor& numbers) {
  at::Tensor tensor = at::empty(numbers.sizes(), numbers.options().device(at::kCUDA));
  tensor.copy_(numbers.contiguous());
  return tensor;
}

at::Tensor strided_on_device(const at::Tensor& numbers) {
  return on_device(at::stack({numbers, numbers}, -1)).select(-1, 0);
}

at::Tensor on_host(const at::Tensor& tensor) {
  at::Tensor numbers = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  copy(numbers, tensor, false);
  return numbers;
}

}  // namespace kolo::c10d::test
