// SPDX-License-Identifier: Apache-2.0
#include "races.hpp"

#include <algorithm>
#include <utility>

namespace kolo::emulated {

std::string to_string(const Operation& operation) {
  std::string text = operation.what + " on " + operation.where;
  if (!operation.site.empty()) text += " (" + operation.site + ")";
  return text;
}

namespace {

bool ordered(const Access& earlier, const VectorClock& clock) { return clock.at(earlier.actor) >= earlier.time; }

}  // namespace

void AccessHistory::split(std::size_t offset) {
  auto after = segments_.upper_bound(offset);
  if (after == segments_.begin()) return;
  auto& [begin, segment] = *std::prev(after);
  if (begin == offset || segment.end <= offset) return;
  Segment tail = segment;
  segment.end = offset;
  segments_.emplace_hint(after, offset, std::move(tail));
}

void AccessHistory::fill_gaps(std::size_t begin, std::size_t end) {
  auto next = segments_.lower_bound(begin);
  while (begin < end) {
    const std::size_t gap_end = next == segments_.end() ? end : std::min(end, next->first);
    if (begin < gap_end) segments_.emplace_hint(next, begin, Segment{gap_end, {}, {}});
    if (next == segments_.end()) return;
    begin = next->second.end;
    ++next;
  }
}

void AccessHistory::enter(const Access& access, std::size_t begin, std::size_t end, const VectorClock& clock,
                          const Conflict& conflict) {
  if (begin >= end) return;
  split(begin);
  split(end);
  if (!access.write) fill_gaps(begin, end);
  const auto first = segments_.lower_bound(begin);
  const auto last = segments_.lower_bound(end);
  for (auto it = first; it != last; ++it) {
    Segment& segment = it->second;
    if (segment.write && !ordered(*segment.write, clock)) conflict(*segment.write, it->first, segment.end);
    if (access.write) {
      for (const Access& read : segment.reads) {
        if (!ordered(read, clock)) conflict(read, it->first, segment.end);
      }
    } else {
      // A later write that comes after this read comes after those as well.
      segment.reads.erase(std::remove_if(segment.reads.begin(), segment.reads.end(),
                                         [&](const Access& read) { return ordered(read, clock); }),
                          segment.reads.end());
      segment.reads.push_back(access);
    }
  }
  if (access.write) {
    segments_.erase(first, last);
    segments_.emplace(begin, Segment{end, access, {}});
  }
}

}  // namespace kolo::emulated
