// SPDX-License-Identifier: Apache-2.0
//
// Every collective in a group, of one length: for tests that differ in the group, the lengths and the settings. (Types,
// operations and forms: cases.hpp.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

namespace kolo::testing {

/// Small whole numbers, others for each rank, place and call.
template <class T>
std::vector<T> numbers_of(int rank, std::int64_t count, int call, std::int64_t first = 0) {
  std::vector<T> numbers;
  for (std::int64_t i = first; i < first + count; ++i)
    numbers.push_back(static_cast<T>((static_cast<std::uint64_t>(i) * 40'503 >> 5U) % 23 +
                                     static_cast<unsigned>(rank * 3 + call) % 7));
  return numbers;
}

/// Inputs are overwritten as soon as a call returns. `name`: of the calls; none: they have no name. `wrong` is told of
/// each result that is wrong.
template <class T>
void check_every_collective(const Group& group, std::int64_t count, int call, const std::string& name,
                            const std::function<void(const std::string&)>& wrong) {
  using Numbers = std::vector<T>;
  constexpr T kOld{77};
  const std::vector<int> members = group.members();
  const int ranks = size(group), own = rank(group), root = call % ranks;
  const auto mine = [&](std::int64_t elements) { return numbers_of<T>(kolo::rank(), elements, call); };
  const auto append = [&](Numbers& to, int member, std::int64_t elements, std::int64_t first) {
    const Numbers theirs = numbers_of<T>(members[static_cast<std::size_t>(member)], elements, call, first);
    to.insert(to.end(), theirs.begin(), theirs.end());
  };
  Numbers sum(static_cast<std::size_t>(count)), in, out;
  for (const int member : members) {
    const Numbers theirs = numbers_of<T>(member, count, call);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<T>(sum[i] + theirs[i]);
  }
  const auto expect = [&](const std::string& what, const Numbers& wanted, Numbers given, const auto& call_of) {
    in = std::move(given);
    out.assign(wanted.size(), kOld);
    const Call the_call = call_of();
    name.empty() ? run(group, the_call) : run({group, name + what}, the_call);
    in.assign(in.size(), kOld);
    if (out == wanted) return;
    wrong(what + " of " + std::to_string(count) + " elements in a group of " + std::to_string(ranks) + ", call " +
          std::to_string(call));
  };
  const auto at_root = [&](const Numbers& numbers) { return own == root ? numbers : Numbers(numbers.size(), kOld); };
  expect("allreduce", sum, mine(count), [&] { return Call::allreduce_into(const_view(in), view(out)); });
  expect("reduce", at_root(sum), mine(count), [&] { return Call::reduce_into(const_view(in), view(out), root); });
  Numbers wanted;
  append(wanted, root, count, 0);
  expect("broadcast", wanted, mine(count), [&] { return Call::broadcast_into(const_view(in), view(out), root); });

  wanted.clear();  // each rank gives one element more than the one before
  for (int member = 0; member < ranks; ++member) append(wanted, member, count + member, 0);
  expect("allgather", wanted, mine(count + own), [&] { return Call::allgather_into(const_view(in), view(out)); });
  expect("gather", at_root(wanted), mine(count + own),
         [&] { return Call::gather_into(const_view(in), view(out), root); });

  std::vector<std::int64_t> splits(static_cast<std::size_t>(ranks));  // each gets one more
  std::iota(splits.begin(), splits.end(), count);
  const std::int64_t before = count * own + std::int64_t{own} * (own - 1) / 2;
  const std::int64_t all = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  wanted.clear();
  append(wanted, root, count + own, before);
  expect("scatter", wanted, mine(own == root ? all : 0),
         [&] { return Call::scatter_into(const_view(in), view(out), root, splits); });
  wanted.clear();
  for (int member = 0; member < ranks; ++member) append(wanted, member, count + own, before);
  expect("alltoall with splits", wanted, mine(all),
         [&] { return Call::alltoall_into(const_view(in), view(out), splits); });
  wanted.clear();
  for (int member = 0; member < ranks; ++member) append(wanted, member, count, own * count);
  expect("alltoall", wanted, mine(count * ranks), [&] { return Call::alltoall_into(const_view(in), view(out)); });

  const std::int64_t rows = count / ranks + (own < count % ranks ? 1 : 0);
  const std::int64_t first = count / ranks * own + std::min<std::int64_t>(own, count % ranks);
  expect("reduce_scatter", {sum.begin() + first, sum.begin() + first + rows}, mine(count),
         [&] { return Call::reduce_scatter_into(const_view(in), view(out)); });
  barrier(group);
}

}  // namespace kolo::testing
