// SPDX-License-Identifier: Apache-2.0
#include "engine/joins.hpp"

#include "base/machine.hpp"
#include "data/backend.hpp"
#include "data/neutral.hpp"

namespace kolo::engine {
namespace {

/// The bytes of this rank's input while it is absent. If the kind does not reduce, it gives nothing: it is no root, and
/// gathers ask each rank for its number of rows. A device's backend needs no memory.
std::size_t bytes_of(const core::Signature& signature, const core::TensorSignature& tensor) {
  if (!core::traits_of(signature.kind).reduces || signature.device != DeviceKind::cpu) return 0;
  return static_cast<std::size_t>(tensor.shape.elements()) * size_of(tensor.dtype);
}

Buffer buffer_of(const core::Signature& signature, const core::TensorSignature& tensor, std::byte* memory, int rank,
                 int size) {
  const core::CollectiveTraits& traits = core::traits_of(signature.kind);
  Buffer buffer;
  buffer.elements = traits.rows_differ ? 0 : tensor.shape.elements();
  if (!traits.reduces || signature.device != DeviceKind::cpu) return buffer;
  data::fill_neutral(tensor.dtype, signature.op, signature.prescale, memory, buffer.elements);
  buffer.input = memory;
  if (traits.rooted) return buffer;
  buffer.output = memory;  // nobody reads it
  if (traits.shapes != core::Shapes::own_rows || tensor.shape[0] == 0) return buffer;
  const auto row = static_cast<std::int64_t>(bytes_of(signature, tensor)) / tensor.shape[0];
  buffer.output += data::RowsOf(tensor.shape[0], rank, size).begin * row;
  return buffer;
}

}  // namespace

std::vector<OperationPtr> Joins::stand_ins(const std::vector<std::shared_ptr<const core::Signature>>& signatures,
                                           int rank, int size) {
  struct StandIn {
    Operation operation;
    std::shared_ptr<Memory> memory;
  };
  const auto room_of = [](const core::Signature& signature, const core::TensorSignature& tensor) {
    return base::round_up(bytes_of(signature, tensor), base::kCacheLine);
  };
  std::size_t bytes = 0;
  for (const auto& signature : signatures) {
    for (const core::TensorSignature& tensor : signature->tensors) bytes += room_of(*signature, tensor);
  }
  const std::shared_ptr<Memory> memory = take_memory(bytes);
  std::byte* at = memory->bytes.get();
  std::vector<OperationPtr> operations;
  operations.reserve(signatures.size());
  for (const auto& signature : signatures) {
    const auto one = std::make_shared<StandIn>();
    one->memory = memory;
    one->operation.signature = signature;
    for (const core::TensorSignature& tensor : signature->tensors) {
      one->operation.buffers.push_back(buffer_of(*signature, tensor, at, rank, size));
      at += room_of(*signature, tensor);
    }
    operations.emplace_back(one, &one->operation);
  }
  return operations;
}

std::shared_ptr<Joins::Memory> Joins::take_memory(std::size_t bytes) {
  for (const std::shared_ptr<Memory>& memory : memory_) {
    if (memory.use_count() == 1 && memory->size >= bytes) return memory;
  }
  auto memory = std::make_shared<Memory>();
  memory->bytes.reset(new std::byte[bytes]);  // not set to zero
  memory->size = bytes;
  // A few batches are open at once; memory that is too small for this one is freed.
  for (std::shared_ptr<Memory>& old : memory_) {
    if (old.use_count() > 1) continue;
    old = memory;
    return memory;
  }
  memory_.push_back(memory);
  return memory;
}

}  // namespace kolo::engine
