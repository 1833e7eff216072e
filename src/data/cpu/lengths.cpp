// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/lengths.hpp"

namespace kolo::data::cpu {

std::vector<std::int64_t>& Lengths::open() {
  lengths_.assign(static_cast<std::size_t>(site_.topology.size), 0);
  auto* bytes = reinterpret_cast<std::byte*>(lengths_.data());
  piece_ = {bytes, bytes, site_.topology.size};
  sum_.open(ReduceOp::sum, piece_);
  end_ = 0;
  return lengths_;
}

Collective::Cut Lengths::cut(Chunk& chunk, std::uint64_t taken) {
  if (sum_.cut(chunk, taken) == Collective::Cut::chunk) {
    end_ = chunk.number + 1;
    return Collective::Cut::chunk;
  }
  return taken < end_ ? Collective::Cut::wait : Collective::Cut::end;
}

}  // namespace kolo::data::cpu
