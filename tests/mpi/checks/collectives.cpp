// SPDX-License-Identifier: Apache-2.0
//
// Every collective of the public API, checked on every rank.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>
#include <kolo/objects.hpp>

#include "tests/mpi/checks/check.hpp"

namespace {

using kolo::testing::Report;

template <class T>
void check_allreduce(Report& report, const char* name, std::size_t count) {
  std::vector<T> x(count);
  const auto ranks = static_cast<std::size_t>(kolo::size());
  const auto own = static_cast<std::size_t>(kolo::rank());
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<T>((i + own) % 13);
  std::vector<T> out(count, static_cast<T>(77));
  const kolo::ConstTensorView in = kolo::const_view(x);
  kolo::Handle handle = kolo::allreduce_into_async(name, in, kolo::view(out));
  handle.wait();
  bool right = true;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t sum = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) sum += (i + rank) % 13;
    right = right && out[i] == static_cast<T>(sum);
  }
  report.check(right, name);
}

void check_steps(Report& report) {
  for (int step = 0; step < 20; ++step) {
    std::vector<std::vector<float>> gradients;
    for (int k = 0; k < 30; ++k) gradients.emplace_back(1000 + 37 * k, static_cast<float>(kolo::rank() + k));
    std::vector<kolo::Handle> handles;
    for (int k = 29; k >= 0; --k) {
      handles.push_back(kolo::allreduce_async("gradient " + std::to_string(k),
                                              kolo::view(gradients[static_cast<std::size_t>(k)]),
                                              kolo::AllreduceOptions{}.with_op(kolo::ReduceOp::average)));
    }
    kolo::wait_all(handles);
    kolo::end_step();
    for (int k = 0; k < 30; ++k) {
      const float wanted = static_cast<float>(kolo::size() * k + kolo::size() * (kolo::size() - 1) / 2) /
                           static_cast<float>(kolo::size());
      for (const float x : gradients[static_cast<std::size_t>(k)]) {
        if (x != wanted) return report.check(false, "averaged gradients");
      }
    }
  }
}

void check_others(Report& report) {
  for (int root = 0; root < kolo::size(); ++root) {
    std::vector<std::int16_t> x(100'001, static_cast<std::int16_t>(kolo::rank() == root ? root + 3 : -1));
    kolo::broadcast(kolo::view(x), root);
    report.check(x == std::vector<std::int16_t>(100'001, static_cast<std::int16_t>(root + 3)), "broadcast");
  }
  const std::vector<double> mine(static_cast<std::size_t>(kolo::rank()) * 1000, kolo::rank());
  const kolo::Tensor all = kolo::allgather(kolo::const_view(mine));
  std::vector<double> wanted;
  for (int rank = 0; rank < kolo::size(); ++rank)
    wanted.insert(wanted.end(), static_cast<std::size_t>(rank) * 1000, rank);
  const auto got = all.as<double>();
  report.check(std::vector<double>(got.begin(), got.end()) == wanted, "allgather");
  report.check(kolo::broadcast_object(std::string("from ") + std::to_string(kolo::rank()), kolo::size() - 1) ==
                   "from " + std::to_string(kolo::size() - 1),
               "broadcast_object");
  kolo::barrier();
}

/// The first of a row of two numbers is its sender, the second which of its rows it is.
void check_alltoall(Report& report) {
  const int rank = kolo::rank();
  const auto rows = [](int from, int to) { return std::int64_t{(from * 5 + to) % 4 == 0 ? 0 : 1000 * from + to}; };
  std::vector<std::int64_t> splits, from_each;
  std::vector<int> mine, wanted;
  for (int other = 0; other < kolo::size(); ++other) {
    splits.push_back(rows(rank, other));
    from_each.push_back(rows(other, rank));
    for (std::int64_t i = 0; i < splits.back(); ++i) mine.insert(mine.end(), {rank, static_cast<int>(i) + other});
    for (std::int64_t i = 0; i < from_each.back(); ++i)
      wanted.insert(wanted.end(), {other, static_cast<int>(i) + rank});
  }
  const kolo::Shape shape{static_cast<std::int64_t>(mine.size()) / 2, 2};
  const auto [output, received] = kolo::alltoall(kolo::const_view(mine.data(), shape), splits);
  const auto got = output.as<int>();
  report.check(std::vector<int>(got.begin(), got.end()) == wanted, "alltoall with splits");
  report.check(received == from_each, "received splits");
  constexpr std::size_t kPart = 30'001;
  std::vector<float> in(kPart * static_cast<std::size_t>(kolo::size()));
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i / kPart * 100) + static_cast<float>(rank);
  std::vector<float> out(in.size(), -1);
  kolo::alltoall_into("alltoall", kolo::const_view(in), kolo::view(out));
  bool right = true;
  for (std::size_t i = 0; i < out.size(); ++i)
    right = right && out[i] == static_cast<float>(rank * 100) + static_cast<float>(i / kPart);
  report.check(right, "alltoall");
}

template <class T>
void check_reduce_scatter(Report& report, const char* name, int rows) {
  const int size = kolo::size();
  const int rank = kolo::rank();
  std::vector<T> x(static_cast<std::size_t>(rows) * 3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>((i + static_cast<std::size_t>(rank)) % 13);
  const kolo::Tensor result = kolo::reduce_scatter(name, kolo::const_view(x.data(), kolo::Shape{rows, 3}));
  const std::size_t begin = 3 * static_cast<std::size_t>(rows / size * rank + std::min(rank, rows % size));
  report.check(result.shape()[0] == rows / size + (rank < rows % size ? 1 : 0), "rows of a reduce_scatter");
  const auto got = result.as<T>();
  bool right = true;
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::size_t sum = 0;
    for (int other = 0; other < size; ++other) sum += (begin + i + static_cast<std::size_t>(other)) % 13;
    right = right && got[i] == static_cast<T>(sum);
  }
  report.check(right, name);
}

/// To every root, in place and apart; the other ranks' tensors are left alone.
template <class T>
void check_reduce(Report& report, const char* name, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(kolo::size());
  const auto own = static_cast<std::size_t>(kolo::rank());
  std::vector<T> mine(count), sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    mine[i] = static_cast<T>((i + own) % 13);
    std::size_t sum = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) sum += (i + rank) % 13;
    sums[i] = static_cast<T>(sum);
  }
  for (int root = 0; root < kolo::size(); ++root) {
    const bool is_root = kolo::rank() == root;
    std::vector<T> x = mine;
    kolo::Handle handle = kolo::reduce_async(name, kolo::view(x), root);
    std::vector<T> out(count, static_cast<T>(77));
    kolo::reduce_into(kolo::const_view(mine), kolo::view(out), root);
    handle.wait();
    report.check(x == (is_root ? sums : mine), name);
    report.check(out == (is_root ? sums : std::vector<T>(count, static_cast<T>(77))), name);
  }
}

/// Of rows that differ by rank, to every root.
void check_gather(Report& report) {
  const std::vector<double> mine(static_cast<std::size_t>(kolo::rank()) * 1000 + 3, kolo::rank());
  std::vector<double> wanted;
  for (int rank = 0; rank < kolo::size(); ++rank)
    wanted.insert(wanted.end(), static_cast<std::size_t>(rank) * 1000 + 3, rank);
  for (int root = 0; root < kolo::size(); ++root) {
    const bool is_root = kolo::rank() == root;
    kolo::Future<kolo::Tensor> future = kolo::gather_async("gather", kolo::const_view(mine), root);
    std::vector<double> out(is_root ? wanted.size() : 1, -1);
    kolo::gather_into(kolo::const_view(mine), kolo::view(out), root);
    report.check(out == (is_root ? wanted : std::vector<double>(1, -1)), "gather into memory of the root");
    const kolo::Tensor all = future.get();
    const auto got = all.as<double>();
    report.check(std::vector<double>(got.begin(), got.end()) == (is_root ? wanted : std::vector<double>()), "gather");
  }
}

/// Of rows that differ by rank, from every root.
void check_scatter(Report& report) {
  std::vector<std::int64_t> splits;
  for (int rank = 0; rank < kolo::size(); ++rank) splits.push_back(rank * 7'001 + 2);
  const auto before = std::accumulate(splits.begin(), splits.begin() + kolo::rank(), std::int64_t{0});
  const auto all = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  for (int root = 0; root < kolo::size(); ++root) {
    std::vector<std::int32_t> in(kolo::rank() == root ? static_cast<std::size_t>(all) : 0);
    std::iota(in.begin(), in.end(), root);
    std::vector<std::int32_t> out(static_cast<std::size_t>(splits[static_cast<std::size_t>(kolo::rank())]), -1);
    std::vector<std::int32_t> named = out, wanted = out;
    std::iota(wanted.begin(), wanted.end(), root + static_cast<int>(before));
    kolo::Handle handle = kolo::scatter_into_async("scatter", kolo::const_view(in), kolo::view(named), root, splits);
    kolo::scatter_into(kolo::const_view(in), kolo::view(out), root, splits);
    report.check(out == wanted, "scatter");
    handle.wait();
    report.check(named == wanted, "scatter by name");
  }
}

void check_collectives(Report& report) {
  check_allreduce<float>(report, "float32 x 1", 1);
  check_allreduce<float>(report, "float32 x 1000", 1000);
  check_allreduce<double>(report, "float64 x 300001", 300'001);
  check_allreduce<std::int64_t>(report, "int64 x 70000", 70'000);
  check_allreduce<std::uint8_t>(report, "uint8 x 99999", 99'999);
  check_steps(report);
  check_others(report);
  check_alltoall(report);
  check_reduce<float>(report, "reduce of float32 x 5", 5);
  check_reduce<double>(report, "reduce of float64 x 100001", 100'001);
  check_reduce<std::uint8_t>(report, "reduce of uint8 x 33333", 33'333);
  check_gather(report);
  check_scatter(report);
  check_reduce_scatter<float>(report, "reduce_scatter of float32", 70'001);
  check_reduce_scatter<std::int16_t>(report, "reduce_scatter of int16", 33'333);
  check_reduce_scatter<std::uint8_t>(report, "reduce_scatter of uint8", 3);
}

const kolo::testing::Registered registered({.name = "collectives", .run = check_collectives});

}  // namespace
