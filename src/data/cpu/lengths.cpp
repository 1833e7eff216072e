// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/lengths.hpp"

#include <exception>
#include <string>

namespace kolo::data::cpu {

void Lengths::open(std::size_t runs, ReduceOp op) {
  lengths_.assign(runs * static_cast<std::size_t>(site_.topology.size), 0);
  auto* bytes = reinterpret_cast<std::byte*>(lengths_.data());
  numbers_.dtype = DType::int64;
  numbers_.op = op;
  numbers_.elements = static_cast<std::int64_t>(lengths_.size());
  numbers_.pieces = {{bytes, bytes, numbers_.elements}};
  sum_.open(numbers_, nullptr);
  end_ = 0;
}

Collective::Cut Lengths::cut(Chunk& chunk, std::uint64_t taken) {
  if (sum_.cut(chunk, taken) == Collective::Cut::chunk) {
    end_ = chunk.number + 1;
    return Collective::Cut::chunk;
  }
  return taken < end_ ? Collective::Cut::wait : Collective::Cut::end;
}

std::vector<std::int64_t> Lengths::of(std::size_t run) const {
  const auto size = static_cast<std::ptrdiff_t>(site_.topology.size);
  const auto begin = lengths_.begin() + static_cast<std::ptrdiff_t>(run) * size;
  return {begin, begin + size};
}

std::byte* allocate_output(data::Run& run, const std::vector<std::int64_t>& parts) {
  try {
    return run.allocate(parts);
  } catch (const Error& error) {
    run.status = error.status();
  } catch (const std::exception& error) {
    const bool in_rows = !run.splits.empty();
    const std::int64_t unit = in_rows ? run.row_elements * static_cast<std::int64_t>(size_of(run.dtype)) : 1;
    std::int64_t bytes = 0;
    for (const std::int64_t part : parts) bytes += part * unit;
    run.status =
        Status(ErrorCode::out_of_memory, "no memory for the result of " + std::string(core::to_string(run.kind)) +
                                             ", " + std::to_string(bytes) + " bytes: " + error.what());
  }
  return nullptr;
}

}  // namespace kolo::data::cpu
