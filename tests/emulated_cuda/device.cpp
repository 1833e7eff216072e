// SPDX-License-Identifier: Apache-2.0
//
// Kolo's kernels on the emulated device (data/cuda/device.hpp): the same body that nvcc compiles, run for every block
// and thread on the stream's thread. What a launch touches is read from its table when it starts, as the kernel reads
// it.
#include "data/cuda/device.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "call.hpp"
#include "data/cuda/kernels.hpp"
#include "machine.hpp"

namespace kolo::cuda {
namespace {

using emulated::Call;
using emulated::Machine;
using emulated::RawTouch;

template <class T>
T* device_view(T* pointer) {
  // A device's pointer, as its thread may follow it; null stays null.
  return static_cast<T*>(Machine::instance().memory->device_view(pointer));
}

std::vector<Chunk> table_of(const Move& move) {
  const Chunk* table = device_view(move.chunks);
  return {table, table + move.count};
}

std::vector<RawTouch> touches_of(const Move& move) {
  std::vector<RawTouch> touches{{move.chunks, move.count * sizeof(Chunk), false}};
  for (const Chunk& chunk : table_of(move)) {
    const bool packs = move.direction == Direction::pack;
    if (packs ? !chunk.takes_part_in_pack : !chunk.takes_part_in_unpack) continue;
    if (packs) {
      const std::size_t bytes = chunk.bytes_in_buffer;
      const std::size_t rest = chunk.ends ? (kBufferAlignment - bytes % kBufferAlignment) % kBufferAlignment : 0;
      if (chunk.input != nullptr) touches.push_back({chunk.input, chunk.bytes, false});
      touches.push_back({move.buffer + chunk.offset, bytes + rest, true});
    } else {
      const bool in_place = chunk.offset == kNoOffset;
      touches.push_back({in_place ? chunk.output : move.buffer + chunk.offset, chunk.bytes_in_buffer, false});
      touches.push_back({chunk.output, chunk.bytes, true});
    }
  }
  return touches;
}

void run(const Move& move, std::uint32_t blocks) {
  std::vector<Chunk> table = table_of(move);
  for (Chunk& chunk : table) {
    chunk.input = device_view(chunk.input);
    chunk.output = device_view(chunk.output);
  }
  const Move seen{table.data(), move.count, move.direction, device_view(move.buffer)};
  for (std::uint32_t block = 0; block < blocks; ++block) {
    for (std::uint32_t thread = 0; thread < kernels::kThreads; ++thread) kernels::move(seen, {block, blocks, thread});
  }
}

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw Error(ErrorCode::transport, std::string(what) + ": " + cudaGetErrorString(result));
}

cudaError_t enqueue(const Move& move, std::uint32_t blocks, cudaStream_t raw_stream) {
  Call call("launch");
  if (const cudaError_t refused = call.refusal()) return refused;
  const emulated::StreamPtr stream = call.stream(raw_stream);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (call.captured(*stream)) return cudaErrorStreamCaptureUnsupported;
  if (stream->device != call.host().device) {
    return call.misuse(cudaErrorInvalidResourceHandle, stream->name() + " is not of the current device");
  }
  if (blocks == 0) return call.misuse(cudaErrorInvalidConfiguration, "a launch of no blocks");
  emulated::Op op = call.op(*stream, move.direction == Direction::pack ? "kernel pack" : "kernel unpack");
  op.find_touches = [move] { return touches_of(move); };
  op.body = [move, blocks] { run(move, blocks); };
  call.machine.submit(stream, std::move(op));
  return call.end(cudaSuccess);
}

}  // namespace

void load_kernels() {
  Call call("load kernels");
  check(call.refusal(), "loading the kernels");
}

void launch(const Move& move, std::uint32_t blocks, cudaStream_t stream) {
  check(enqueue(move, blocks, stream), "launching the kernel that packs and unpacks");
}

bool performs(const char* call, CallSite site) noexcept { return emulated::passes(call, site.file, site.line); }

void host_touches(const void* data, std::size_t bytes, bool writes, const char* what) noexcept {
  writes ? emulated::host_write(data, bytes, what) : emulated::host_read(data, bytes, what);
}

void tells_of(cudaEvent_t event, cudaStream_t stream) noexcept { emulated::expect_behind(stream, event); }

void host_was_told() noexcept { emulated::acquire_all(); }
void host_passes_on(const void* key) noexcept { emulated::release(key); }
void host_takes_over(const void* key) noexcept { emulated::acquire(key); }

}  // namespace kolo::cuda
