// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/lengths.hpp"

namespace kolo::data::cpu {

void Lengths::open(std::size_t runs) {
  lengths_.assign(runs * static_cast<std::size_t>(site_.topology.size), 0);
  auto* bytes = reinterpret_cast<std::byte*>(lengths_.data());
  piece_ = {bytes, bytes, static_cast<std::int64_t>(lengths_.size())};
  sum_.open(ReduceOp::sum, piece_);
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

}  // namespace kolo::data::cpu
