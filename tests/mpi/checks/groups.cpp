// SPDX-License-Identifier: Apache-2.0
//
// Groups of some ranks between processes: made by their members or by a split, overlapping, one after another, each
// with every collective, by name and unnamed, small and large.
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "tests/mpi/checks/check.hpp"

namespace {

using kolo::Group;
using kolo::testing::Report;

std::int32_t value(int rank, std::int64_t i) { return static_cast<std::int32_t>(rank * 1009 + i * 3); }

std::vector<std::int32_t> input_of(int rank, std::int64_t elements) {
  std::vector<std::int32_t> in(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) in[static_cast<std::size_t>(i)] = value(rank, i);
  return in;
}

std::vector<std::int32_t> sum_of(const std::vector<int>& members, std::int64_t elements) {
  std::vector<std::int32_t> sum(static_cast<std::size_t>(elements));
  for (const int member : members) {
    for (std::int64_t i = 0; i < elements; ++i) sum[static_cast<std::size_t>(i)] += value(member, i);
  }
  return sum;
}

void run_all(Report& report, const Group& group, std::int64_t elements, const std::string& name) {
  const std::vector<int> members = group.members();
  const int ranks = kolo::size(group), own = kolo::rank();
  const std::string what = " of " + std::to_string(elements) + " elements in a group of " + std::to_string(ranks);
  std::vector<std::int32_t> x = input_of(own, elements), y = x, z(x.size(), -2);
  kolo::Handle first = kolo::allreduce_async({group, name + "x"}, kolo::view(x));
  kolo::allreduce(group, kolo::view(y));
  const int root = static_cast<int>(elements % ranks);
  const std::vector<std::int32_t> in = input_of(own, elements);
  kolo::broadcast_into(group, kolo::const_view(in), kolo::view(z), root);
  first.wait();
  report.check(x == sum_of(members, elements), "allreduce by name" + what);
  report.check(y == sum_of(members, elements), "allreduce" + what);
  report.check(z == input_of(members[static_cast<std::size_t>(root)], elements), "broadcast" + what);
  const std::vector<std::int32_t> part = input_of(own, elements + own);
  std::vector<std::int32_t> wanted;
  for (const int member : members) {
    const std::vector<std::int32_t> theirs = input_of(member, elements + member);
    wanted.insert(wanted.end(), theirs.begin(), theirs.end());
  }
  std::vector<std::int32_t> all(wanted.size(), -2);
  kolo::allgather_into(group, kolo::const_view(part), kolo::view(all));
  report.check(all == wanted, "allgather" + what);
  const std::vector<std::int32_t> blocks = input_of(own, elements * ranks);
  std::vector<std::int32_t> got(blocks.size(), -2);
  kolo::alltoall_into({group, name + "a"}, kolo::const_view(blocks), kolo::view(got));
  bool right = true;
  for (int r = 0; r < ranks; ++r) {
    for (std::int64_t i = 0; i < elements; ++i) {
      right = right && got[static_cast<std::size_t>(r * elements + i)] ==
                           value(members[static_cast<std::size_t>(r)], kolo::rank(group) * elements + i);
    }
  }
  report.check(right, "alltoall" + what);
}

void check_groups(Report& report) {
  const int ranks = kolo::size(), own = kolo::rank();
  std::vector<Group> groups{kolo::world().split(own % 2, -own), kolo::world().split(own / 2)};
  for (int first = 0; first + 1 < ranks; ++first) {  // a chain: each rank but the ends is in two pairs
    if (own == first || own == first + 1) groups.push_back(Group::of({first + 1, first}));
  }
  if (own > 0) {
    std::vector<int> others(static_cast<std::size_t>(ranks - 1));
    std::iota(others.begin(), others.end(), 1);
    groups.push_back(Group::of(others));
  }
  for (const std::int64_t elements : {0, 1, 14, 1000, 20000, 300000}) {
    for (const Group& group : groups) run_all(report, group, elements, "");
  }
  std::vector<std::vector<std::int32_t>> data;
  std::vector<kolo::Handle> handles;
  for (int step = 0; step < 5; ++step) {
    data.clear();
    handles.clear();
    for (const Group& group : groups) {
      for (int k = 0; k < 10; ++k) {
        data.push_back(input_of(own, 100 * k));
        handles.push_back(kolo::allreduce_async({group, std::to_string(k)}, kolo::view(data.back())));
      }
    }
    kolo::wait_all(handles);
    bool right = true;
    for (std::size_t i = 0; i < data.size(); ++i) {
      right = right && data[i] == sum_of(groups[i / 10].members(), static_cast<std::int64_t>(i % 10) * 100);
    }
    report.check(right, "steps in several groups at once");
    for (const Group& group : groups) kolo::end_step(group);
  }
  for (int round = 0; round < 100; ++round) {
    const Group pair = kolo::world().split(own / 2, round);
    report.check(kolo::allreduce(pair, 1, kolo::ReduceOp::sum) == kolo::size(pair), "a group of a moment");
  }
}

const kolo::testing::Registered registered({"groups", check_groups});

}  // namespace
