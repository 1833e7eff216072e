// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/uneven_rows.hpp"

namespace kolo::data::cpu {

void UnevenRows::open(Runs runs, data::Job& /*job*/) {
  runs_ = runs;
  lengths_known_ = false;
  is_open_ = false;
  ends_.clear();
  open_lengths();
}

Collective::Cut UnevenRows::cut(Chunk& chunk, std::uint64_t taken) {
  if (!lengths_known_) {
    const Cut cut = cut_lengths(chunk, taken);
    if (cut != Cut::end) return cut;
    lengths_known_ = true;
  }
  for (; ends_.count() < runs_.size(); ends_.add(chunk.number)) {
    if (!is_open_) open_rows(ends_.count(), rows_.now());
    is_open_ = true;
    if (rows_.now().cut(chunk, taken) == Cut::chunk) {
      rows_.note_chunk();
      return Cut::chunk;
    }
    rows_.advance();
    is_open_ = false;
  }
  return Cut::end;
}

}  // namespace kolo::data::cpu
