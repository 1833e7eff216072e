// SPDX-License-Identifier: Apache-2.0
//
// Every collective of every type with every operation, fused with others and alone, through a buffer and where it lies,
// in place and apart, on a device that does everything late: worlds of each with delays of their own.
#include <cstdio>
#include <tuple>

#include "tests/data/cuda/any_collective.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::cuda::test {
namespace {

constexpr unsigned kSeeds = kolo::testing::unless_sanitized(2U, 1U);

enum class Way : std::uint8_t { fused, alone, direct };

std::vector<AnyArguments> all_arguments(bool nccl, Way way) {
  std::vector<AnyArguments> all;
  std::size_t cell = 0;
  for (const core::CollectiveKind kind : kKinds) {
    for (const DType dtype : kTypes) {
      for (const ReduceOp op : exact::kReduceOps) {
        if (!core::traits_of(kind).reduces && op != ReduceOp::sum) continue;
        for (const bool in_place : {true, false}) {
          if (!kolo::testing::is_taken(cell++)) continue;
          AnyArguments arguments;
          arguments.kind = kind;
          arguments.dtype = dtype;
          arguments.op = op;
          arguments.in_place = in_place;
          // A row more for every one of them, so that alignments and ends differ.
          arguments.rows = way == Way::direct ? 16 : 1 + static_cast<std::int64_t>(all.size() % 13);
          arguments.width = way == Way::direct ? 16 : 3;
          arguments.root = static_cast<int>(all.size());
          arguments.scaled = all.size() % 3 == 0;
          if (!is_supported(arguments, nccl)) continue;
          all.push_back(arguments);
          if (!core::traits_of(kind).reduces || core::wire_of(dtype, core::Wire::float16) == core::Wire::own) continue;
          for (const DType narrow : {DType::float16, DType::bfloat16}) {
            arguments.send_as = narrow;
            arguments.scaled = !arguments.scaled;
            all.push_back(arguments);
          }
        }
      }
    }
  }
  return all;
}

Options options_of(Way way, const char* backend) {
  // Alone: every tensor is a batch of its own. Direct: what a collective can reduce where it lies is not packed.
  return Options{}
      .with_setting("KOLO_TIMEOUT_S", "60")
      .with_setting("KOLO_SHARE_DEVICE", emulated::kIsReal ? "1" : "0")
      .with_setting("KOLO_GPU_BACKEND", backend)
      .with_setting("KOLO_FUSION_THRESHOLD", way == Way::alone ? "0" : "64K")
      .with_setting("KOLO_GPU_DIRECT_BYTES", way == Way::direct ? "1" : "1M");
}

/// Number of ranks; KOLO_GPU_BACKEND; how.
class Matrix : public CudaTest, public ::testing::WithParamInterface<std::tuple<int, const char*, Way>> {};

TEST_P(Matrix, EveryCollectiveTypeAndOperation) {
  const auto& [ranks, backend, way] = GetParam();
  const std::vector<AnyArguments> all = all_arguments(std::string(backend) == "nccl", way);
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    emulated::Config device = machine();
    device.seed = seed;
    emulated::reset(device);
    run_local(
        ranks,
        [&] {
          bind();
          const RankStream streams[2];
          // So many at a time that fused ones find company.
          constexpr std::size_t kTogether = 24;
          for (std::size_t begin = 0; begin < all.size(); begin += kTogether) {
            std::vector<AnyCollective> collectives;
            for (std::size_t i = begin; i < std::min(begin + kTogether, all.size()); ++i) {
              AnyArguments arguments = all[i];
              arguments.root %= size();
              collectives.emplace_back("m" + std::to_string(i), arguments, streams[i % 2], i % 3);
            }
            std::vector<Handle> handles;
            for (AnyCollective& one : collectives) handles.push_back(one.start(seed));
            for (std::size_t i = 0; i < handles.size(); ++i) finish(handles[i], collectives[i], i % 5 == 0);
            for (const AnyCollective& one : collectives) one.expect_result();
            wait_all(handles);
          }
        },
        options_of(way, backend));
    expect_no_reports();
  }
  std::printf("%zu collectives of %d ranks by way of %s, with delays of %u kinds\n", all.size(), ranks, backend,
              kSeeds);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<int, const char*, Way>>& info) {
  static constexpr const char* kWays[] = {"fused", "alone", "direct"};
  return std::to_string(std::get<0>(info.param)) + "_" + std::get<1>(info.param) + "_" +
         kWays[static_cast<int>(std::get<2>(info.param))];
}

#ifdef KOLO_ON_REAL_DEVICE
INSTANTIATE_TEST_SUITE_P(OfOne, Matrix,
                         ::testing::Combine(::testing::Values(1), ::testing::Values("nccl"),
                                            ::testing::Values(Way::fused, Way::alone, Way::direct)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Staged, Matrix,
                         ::testing::Combine(::testing::Values(2, 4), ::testing::Values("staged"),
                                            ::testing::Values(Way::fused, Way::alone)),
                         name_of);
#else
INSTANTIATE_TEST_SUITE_P(Nccl, Matrix,
                         ::testing::Combine(::testing::Values(2, 3), ::testing::Values("nccl"),
                                            ::testing::Values(Way::fused, Way::alone, Way::direct)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Staged, Matrix,
                         ::testing::Combine(::testing::Values(2, 3), ::testing::Values("staged"),
                                            ::testing::Values(Way::fused, Way::alone)),
                         name_of);
#endif

}  // namespace
}  // namespace kolo::cuda::test
