// SPDX-License-Identifier: Apache-2.0
//
// Unnamed calls, small ones past the log and large ones by it, and every element checked on every rank. Inputs are
// overwritten as soon as a call returns.
#include <cstdint>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "tests/mpi/checks/check.hpp"

namespace {

using kolo::testing::Report;

std::int32_t value(int rank, std::int64_t i, int call) {
  return static_cast<std::int32_t>(rank * 100003 + i * 3 + call * 7);
}

std::vector<std::int32_t> input_of(int rank, std::int64_t elements, int call) {
  std::vector<std::int32_t> in(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) in[static_cast<std::size_t>(i)] = value(rank, i, call);
  return in;
}

void spoil(std::vector<std::int32_t>& in) { in.assign(in.size(), -1); }

void run_all(Report& report, std::int64_t elements, int call) {
  const int ranks = kolo::size();
  const int rank = kolo::rank();
  const std::string what = " of " + std::to_string(elements) + " elements";

  const int root = call % ranks;
  std::vector<std::int32_t> x = input_of(rank, elements, call);
  std::vector<std::int32_t> out(x.size(), -2);
  kolo::broadcast_into(kolo::const_view(x), kolo::view(out), root);
  spoil(x);
  report.check(out == input_of(root, elements, call), "broadcast" + what);

  x = input_of(rank, elements + rank, call);
  std::vector<std::int32_t> wanted;
  for (int r = 0; r < ranks; ++r) {
    const std::vector<std::int32_t> part = input_of(r, elements + r, call);
    wanted.insert(wanted.end(), part.begin(), part.end());
  }
  out.assign(wanted.size(), -2);
  kolo::allgather_into(kolo::const_view(x), kolo::view(out));
  spoil(x);
  report.check(out == wanted, "allgather" + what);

  x = input_of(rank, elements * ranks, call);
  out.assign(x.size(), -2);
  kolo::alltoall_into(kolo::const_view(x), kolo::view(out));
  spoil(x);
  bool right = true;
  for (int r = 0; r < ranks; ++r)
    for (std::int64_t i = 0; i < elements; ++i)
      right = right && out[static_cast<std::size_t>(r * elements + i)] == value(r, rank * elements + i, call);
  report.check(right, "alltoall" + what);

  x = input_of(rank, elements, call);
  kolo::allreduce(kolo::view(x));
  right = true;
  for (std::int64_t i = 0; i < elements; ++i) {
    std::int32_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r, i, call);
    right = right && x[static_cast<std::size_t>(i)] == sum;
  }
  report.check(right, "allreduce" + what);
  kolo::barrier();
}

/// Many at once, waited for from the last to the first.
void run_many(Report& report, int step) {
  constexpr std::size_t kCalls = 500;
  std::vector<std::vector<std::int32_t>> tensors;
  std::vector<kolo::Handle> handles;
  for (std::size_t i = 0; i < kCalls; ++i) {
    tensors.push_back(input_of(kolo::rank(), static_cast<std::int64_t>(i % 300), step + static_cast<int>(i)));
  }
  for (std::vector<std::int32_t>& tensor : tensors) handles.push_back(kolo::allreduce_async(kolo::view(tensor)));
  for (std::size_t i = kCalls; i-- > 0;) handles[i].wait();
  for (std::size_t i = 0; i < kCalls; ++i) {
    std::vector<std::int32_t> sum(i % 300, 0);
    for (int rank = 0; rank < kolo::size(); ++rank) {
      const auto input = input_of(rank, static_cast<std::int64_t>(i % 300), step + static_cast<int>(i));
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += input[k];
    }
    report.check(tensors[i] == sum, "asynchronous allreduce number " + std::to_string(i));
  }
}

void check_asynchronous(Report& report) {
  for (int step = 0; step < 3; ++step) run_many(report, step);
}

void check_unnamed(Report& report) {

  int call = 0;
  for (const std::int64_t elements : {0, 1, 13, 14, 1000, 4096, 4097, 20000, 300000, 1200000}) {
    const int repeats = elements < 1'000'000 ? 3 : 1;
    for (int repeat = 0; repeat < repeats; ++repeat) run_all(report, elements, call++);
  }
}

const kolo::testing::Registered registered({.name = "unnamed", .run = check_unnamed, .per_node = {0}});

const kolo::testing::Registered asynchronous({.name = "unnamed_asynchronous", .run = check_asynchronous});

}  // namespace
