// SPDX-License-Identifier: Apache-2.0
//
// GradientArena: exact sums and the same bits everywhere, with tensors of an arena on some ranks and elsewhere on
// others; what went in place is counted.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "tests/mpi/checks/check.hpp"

namespace {

using kolo::testing::Report;

float term(std::int64_t i, int rank, int step) { return static_cast<float>(i % 89 + (step + 1) * (rank + 1)); }

void fill(const kolo::TensorView& view, int step) {
  auto* data = static_cast<float*>(view.data());
  const int rank = kolo::rank();
  for (std::int64_t i = 0, count = view.elements(); i < count; ++i) data[i] = term(i, rank, step);
}

void check(Report& report, const kolo::TensorView& view, int step, const std::string& what) {
  const auto* data = static_cast<const float*>(view.data());
  const int ranks = kolo::size();
  for (std::int64_t i = 0, count = view.elements(); i < count; ++i) {
    float wanted = 0;
    for (int rank = 0; rank < ranks; ++rank) wanted += term(i, rank, step);
    if (data[i] != wanted) return report.check(false, what + " in step " + std::to_string(step));
  }
}

const std::vector<std::int64_t> kSizes{1'000'003, 17, 4'097, 300'000, 1, 64'000};

/// `mine`: whether this rank has tensor k in the arena.
template <class Mine>
void run_steps(Report& report, kolo::GradientArena& arena, const std::string& prefix, Mine mine) {
  std::vector<std::vector<float>> elsewhere;
  std::vector<kolo::TensorView> views;
  for (std::size_t k = 0; k < kSizes.size(); ++k) {
    elsewhere.emplace_back(mine(k) ? 0 : static_cast<std::size_t>(kSizes[k]));
    views.push_back(mine(k) ? arena.allocate(kolo::DType::float32, kolo::Shape{kSizes[k]})
                            : kolo::view(elsewhere.back()));
  }
  for (int step = 0; step < 4; ++step) {
    std::vector<kolo::Handle> handles;
    for (std::size_t k = kSizes.size(); k-- > 0;) {
      fill(views[k], step);
      handles.push_back(kolo::allreduce_async(prefix + std::to_string(k), views[k]));
    }
    kolo::wait_all(handles);
    kolo::end_step();
    for (std::size_t k = 0; k < kSizes.size(); ++k) check(report, views[k], step, prefix + std::to_string(k));
  }
}

void check_bits(Report& report, kolo::GradientArena& arena) {
  const kolo::TensorView x = arena.allocate(kolo::DType::float32, kolo::Shape{100'000});
  auto* data = static_cast<float*>(x.data());
  const int own = kolo::rank();
  for (std::int64_t i = 0, count = x.elements(); i < count; ++i) data[i] = 1.0F / static_cast<float>(i + 3 + 7 * own);
  std::vector<float> y(data, data + x.elements());
  const auto average = kolo::AllreduceOptions{}.with_op(kolo::ReduceOp::average);
  kolo::allreduce("bits x", x, average);
  kolo::allreduce("bits y", kolo::view(y), average);
  report.check(std::memcmp(data, y.data(), y.size() * sizeof(float)) == 0, "the same bits as elsewhere");
  const kolo::Tensor all = kolo::allgather("all", x);
  for (int rank = 0; rank < kolo::size(); ++rank) {
    const float* theirs = all.as<float>().data() + rank * x.elements();
    report.check(std::memcmp(theirs, data, y.size() * sizeof(float)) == 0, "the same bits everywhere");
  }
}

void check_arena(Report& report) {
  kolo::GradientArena arena(32 << 20);
  kolo::GradientArena other(16 << 20, "other");
  run_steps(report, arena, "all", [](std::size_t) { return true; });
  run_steps(report, other, "some", [](std::size_t k) { return (k + static_cast<std::size_t>(kolo::rank())) % 3 != 0; });
  run_steps(report, arena, "one", [](std::size_t) { return kolo::rank() == kolo::size() - 1; });
  check_bits(report, arena);
  const bool shares = kolo::size() > 1;
  report.check((kolo::metrics().bytes_in_place > 0) == shares, "bytes in place");
}

const kolo::testing::Registered registered({.name = "arena", .run = check_arena, .per_node = {0, 2}});

}  // namespace
