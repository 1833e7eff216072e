// SPDX-License-Identifier: Apache-2.0
//
// Many groups one after another, and many at once: neither memory nor descriptors grow with those that are gone, and
// each works.
//
// usage: many_groups MADE ALIVE     so many one after another, and so many at once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include <malloc.h>

#include <kolo/kolo.hpp>

#include "tests/mpi/job.hpp"

namespace {

using kolo::Group;
using kolo::testing::Report;

constexpr std::int64_t kGrowth = std::int64_t{2} << 20;

/// Of the heap. (Shared memory is bounded by KOLO_GROUPS. On a busy machine, where groups are removed late, more of it
/// is touched.)
std::int64_t heap_bytes() {
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<std::int64_t>(heap.uordblks + heap.hblkhd);
}

std::ptrdiff_t descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

int sum_in(const Group& group, int value) { return kolo::allreduce(group, value, kolo::ReduceOp::sum); }

void make_one_after_another(Report& report, const std::vector<int>& all, int made) {
  const int size = kolo::size();
  std::int64_t heap = 0;
  std::ptrdiff_t open = 0;
  bool right = true;
  for (int i = 0; i < made; ++i) {
    const Group group = i % 2 == 0 ? Group::of(all) : kolo::world().split(0, -kolo::rank());
    if (i % 100 == 0) right = right && sum_in(group, i) == size * i;
    if (i != 1000) continue;
    heap = heap_bytes();
    open = descriptors();
  }
  report.check(right, "sums in groups of a moment");
  report.check(heap_bytes() - heap < kGrowth, "memory has grown by " + std::to_string(heap_bytes() - heap) + " bytes");
  report.equal(descriptors(), open, "the number of descriptors");
}

void keep_many(Report& report, const std::vector<int>& all, int alive) {
  std::vector<Group> groups;
  groups.reserve(static_cast<std::size_t>(alive));
  for (int i = 0; i < alive; ++i) groups.push_back(Group::of(all));
  bool right = true;
  for (int i = 0; i < alive; ++i) right = right && sum_in(groups[static_cast<std::size_t>(i)], i) == kolo::size() * i;
  report.check(right, "sums in groups that are there at once");
  // Their memory serves again.
  const std::int64_t heap = heap_bytes();
  groups.clear();
  kolo::barrier();
  for (int i = 0; i < alive; ++i) groups.push_back(Group::of(all));
  for (const Group& group : groups) right = right && sum_in(group, 1) == kolo::size();
  report.check(right, "sums in as many others");
  report.check(heap_bytes() - heap < alive * std::int64_t{8192},
               "memory has grown by " + std::to_string(heap_bytes() - heap) + " bytes");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::puts("usage: many_groups MADE ALIVE");
    return 2;
  }
  const int made = std::stoi(argv[1]);
  const int alive = std::stoi(argv[2]);
  // Small slots: each of these groups has memory of its own between its ranks.
  const kolo::Session session(
      kolo::Options{}.with_setting("KOLO_GROUPS", std::to_string(alive + 10)).with_setting("KOLO_SLOT_BYTES", "4096"));
  Report report("many_groups");
  report.set_place(kolo::rank(), kolo::size());
  std::vector<int> all(static_cast<std::size_t>(kolo::size()));
  std::iota(all.begin(), all.end(), 0);
  return kolo::testing::run(report, [&] {
    make_one_after_another(report, all, made);
    keep_many(report, all, alive);
  });
}
