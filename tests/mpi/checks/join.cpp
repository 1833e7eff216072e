// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are out of data join, between processes: by name and unnamed, small and large, plans and averages, in
// every order of joining; and an optimizer with uneven numbers of batches.
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "tests/mpi/checks/check.hpp"

namespace {

using kolo::ReduceOp;
using kolo::testing::Report;

/// How many steps a rank has data for.
int steps_of(int epoch, int rank, int ranks) {
  if (epoch == 0) return 1 + rank;
  if (epoch == 1) return ranks - rank;
  return rank == ranks / 2 ? 3 : 1;
}

std::vector<int> with_data(int epoch, int step, int ranks) {
  std::vector<int> left;
  for (int rank = 0; rank < ranks; ++rank) {
    if (steps_of(epoch, rank, ranks) > step) left.push_back(rank);
  }
  return left;
}

void check_step(Report& report, const std::vector<int>& left, const std::string& when) {
  const auto ranks = static_cast<double>(left.size());
  const double sum = std::accumulate(left.begin(), left.end(), ranks);  // each gives its rank + 1
  std::vector<kolo::Handle> handles;
  std::vector<std::vector<double>> x;
  for (const std::size_t elements : {1U, 70U, 5000U, 300000U}) x.emplace_back(elements, kolo::rank() + 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const ReduceOp op = i % 2 == 0 ? ReduceOp::average : ReduceOp::sum;
    handles.push_back(kolo::allreduce_async("x" + std::to_string(i), kolo::view(x[i]), op));
  }
  kolo::wait_all(handles);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wanted = i % 2 == 0 ? sum / ranks : sum;
    report.check(x[i] == std::vector<double>(x[i].size(), wanted), "allreduce " + std::to_string(i) + when);
  }
  std::vector<float> least(1000, static_cast<float>(kolo::rank()));
  kolo::allreduce(kolo::view(least), ReduceOp::min);
  report.check(least == std::vector<float>(1000, static_cast<float>(left.front())), "unnamed allreduce" + when);
  const std::vector<std::int32_t> own(40, kolo::rank());
  const kolo::Tensor rows = kolo::allgather("rows", kolo::const_view(own));
  std::vector<std::int32_t> wanted;
  for (const int rank : left) wanted.insert(wanted.end(), 40, rank);
  const auto got = rows.as<std::int32_t>();
  report.check(std::vector<std::int32_t>(got.begin(), got.end()) == wanted, "allgather" + when);
  kolo::end_step();
}

struct Steps {
  int made = 0;
  void step() { ++made; }
  void zero_grad() {}
};

void check_training(Report& report) {
  const int rank = kolo::rank(), ranks = kolo::size();
  std::vector<double> value(100), gradient(100);
  Steps steps;
  const std::vector<kolo::Parameter> parameters{{"w", kolo::view(value), kolo::view(gradient)}};
  kolo::DistributedOptimizer optimizer(steps, parameters);
  for (int step = 0; step < 3 + rank; ++step) {
    double sum = 0;
    int left = 0;
    for (int other = 0; other < ranks; ++other) {
      if (step >= 3 + other) continue;
      sum += other;
      ++left;
    }
    gradient.assign(gradient.size(), rank);
    optimizer.step();
    report.check(gradient == std::vector<double>(gradient.size(), sum / left), "gradients of those who have a batch");
  }
  report.check(kolo::join() == ranks - 1, "the last of uneven batches");
  value.assign(value.size(), rank);
  kolo::broadcast_parameters(parameters, ranks - 1);
  report.check(value == std::vector<double>(value.size(), ranks - 1), "parameters of the last");
}

void check_join(Report& report) {
  const int rank = kolo::rank(), ranks = kolo::size();
  for (int epoch = 0; epoch < 3; ++epoch) {
    int last = 0;
    for (int other = 0; other < ranks; ++other) {
      if (steps_of(epoch, other, ranks) > steps_of(epoch, last, ranks)) last = other;
    }
    for (int step = 0; step < steps_of(epoch, rank, ranks); ++step) {
      check_step(report, with_data(epoch, step, ranks),
                 " in step " + std::to_string(step) + " of epoch " + std::to_string(epoch));
    }
    report.check(kolo::join() == last, "the last of epoch " + std::to_string(epoch));
    for (int i = 0; i < 4; ++i) report.check(kolo::allreduce(i, ReduceOp::sum) == i * ranks, "all are back");
  }
  check_training(report);
}

const kolo::testing::Registered registered({"join", check_join});

}  // namespace
