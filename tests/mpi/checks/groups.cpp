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
#include "tests/support/every_collective.hpp"

namespace {

using kolo::Group;
using kolo::testing::check_every_collective;
using kolo::testing::numbers_of;
using kolo::testing::Report;

std::vector<std::int32_t> sum_of(const std::vector<int>& members, std::int64_t elements) {
  std::vector<std::int32_t> sum(static_cast<std::size_t>(elements));
  for (const int member : members) {
    const std::vector<std::int32_t> theirs = numbers_of<std::int32_t>(member, elements, 0);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
  }
  return sum;
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
  const auto wrong = [&report](const std::string& what) { report.check(false, what); };
  int call = 0;
  for (const std::int64_t elements : {0, 1, 14, 1000, 20000, 300000}) {
    for (const char* name : {"", "x "}) {
      for (const Group& group : groups) check_every_collective<std::int32_t>(group, elements, call, name, wrong);
      ++call;
    }
  }
  std::vector<std::vector<std::int32_t>> data;
  std::vector<kolo::Handle> handles;
  for (int step = 0; step < 5; ++step) {
    data.clear();
    handles.clear();
    for (const Group& group : groups) {
      for (int k = 0; k < 10; ++k) {
        data.push_back(numbers_of<std::int32_t>(own, 100 * k, 0));
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
