// SPDX-License-Identifier: Apache-2.0
//
// Many unnamed calls in flight, and every element checked on every rank.
#include <cstdint>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "tests/mpi/checks/check.hpp"
#include "tests/support/every_collective.hpp"

namespace {

using kolo::testing::numbers_of;
using kolo::testing::Report;

/// Many at once, waited for from the last to the first.
void run_many(Report& report, int step) {
  constexpr std::size_t kCalls = 500;
  std::vector<std::vector<std::int32_t>> tensors;
  std::vector<kolo::Handle> handles;
  for (std::size_t i = 0; i < kCalls; ++i) {
    tensors.push_back(
        numbers_of<std::int32_t>(kolo::rank(), static_cast<std::int64_t>(i % 300), step + static_cast<int>(i)));
  }
  for (std::vector<std::int32_t>& tensor : tensors) handles.push_back(kolo::allreduce_async(kolo::view(tensor)));
  for (std::size_t i = kCalls; i-- > 0;) handles[i].wait();
  for (std::size_t i = 0; i < kCalls; ++i) {
    std::vector<std::int32_t> sum(i % 300, 0);
    for (int rank = 0; rank < kolo::size(); ++rank) {
      const auto input = numbers_of<std::int32_t>(rank, static_cast<std::int64_t>(i % 300), step + static_cast<int>(i));
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += input[k];
    }
    report.check(tensors[i] == sum, "asynchronous allreduce number " + std::to_string(i));
  }
}

void check_asynchronous(Report& report) {
  for (int step = 0; step < 3; ++step) run_many(report, step);
}

const kolo::testing::Registered asynchronous({.name = "unnamed_asynchronous", .run = check_asynchronous});

}  // namespace
