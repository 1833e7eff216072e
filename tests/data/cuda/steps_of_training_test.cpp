// SPDX-License-Identifier: Apache-2.0
//
// Steps of training: what the number of NCCL calls is, when they are made, and thousands of random steps.
#include <algorithm>
#include <atomic>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include <kolo/detail/counters.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>

#include "tests/data/cuda/any_collective.hpp"
#include "tests/data/cuda/resnet50.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::cuda::test {
namespace {

class Training : public CudaTest {};

/// Worlds of random steps.
constexpr unsigned kWorlds = kolo::testing::unless_sanitized(24U, 6U);
constexpr unsigned kStagedWorlds = kolo::testing::unless_sanitized(12U, 3U);
/// The sizes in a step of ResNet-50, of tensors and of batches, divided by this: the same calls, on fewer bytes.
constexpr std::int64_t kDivisor = kolo::testing::unless_sanitized(1, 32);

/// The gradients of ResNet-50, submitted one by one as backward produces them: how many calls of NCCL a step takes, and
/// when they are made.
void a_step_of_resnet50(bool in_arena) {
  constexpr int kRanks = 2;
  constexpr int kSteps = 3;
  const std::int64_t threshold = (std::int64_t{16} << 20) / kDivisor;
  const std::int64_t direct = (std::int64_t{8} << 20) / kDivisor;
  std::vector<std::int64_t> sizes = resnet50();
  ASSERT_EQ(sizes.size(), 161U);
  std::int64_t total = 0;
  std::int64_t larger = 0;
  EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), 25557032);
  for (std::int64_t& size : sizes) {
    size = std::max<std::int64_t>(size / kDivisor, 1);
    total += size * 4;
    larger += size * 4 >= direct ? 1 : 0;
  }

  std::atomic<std::uint64_t> calls_before{0};
  on_devices(
      kRanks,
      Options{}
          .with_setting("KOLO_TIMEOUT_S", "300")
          .with_setting("KOLO_FUSION_THRESHOLD", std::to_string(threshold))
          .with_setting("KOLO_GPU_DIRECT_BYTES", std::to_string(direct)),
      [&](const RankStream& stream) {
        std::optional<GradientArena> arena;
        if (in_arena) {
          std::size_t room = 0;
          for (const std::int64_t size : sizes) room += GradientArena::room_for(DType::float32, Shape{size});
          arena.emplace(room, Device{DeviceKind::cuda, rank()});
        }
        std::vector<DeviceTensor> memory;
        std::vector<TensorView> gradients;
        for (const std::int64_t size : sizes) {
          if (arena) {
            gradients.push_back(arena->allocate(DType::float32, Shape{size}, Stream{stream}));
          } else {
            memory.emplace_back(DType::float32, size, stream);
            gradients.push_back(memory.back().view());
          }
          ok(cudaMemsetAsync(gradients.back().data(), 0, static_cast<std::size_t>(gradients.back().bytes()), stream));
        }
        for (int step = 0; step < kSteps; ++step) {
          if (step == kSteps - 1) {
            together(0, [&] { calls_before = emulated::collective_calls().size(); });
          }
          std::vector<Handle> handles;
          for (std::size_t i = 0; i < gradients.size(); ++i) {
            if (step == kSteps - 1 && i + 1 == gradients.size()) {
              // The first reductions are under way, though the last gradient is not there yet.
              const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
              while (emulated::collective_calls().size() <= calls_before && std::chrono::steady_clock::now() < until) {
                std::this_thread::yield();
              }
              EXPECT_GT(emulated::collective_calls().size(), calls_before) << "nothing runs before the last gradient";
            }
            handles.push_back(
                allreduce_async("g" + std::to_string(i), gradients[i], AllreduceOptions{}.with_op(ReduceOp::average)));
          }
          for (Handle& handle : handles) follow(handle, stream);
          wait_all(handles);
          end_step();
        }
        stream.synchronize();
        if (in_arena) {
          EXPECT_EQ(kolo::detail::counters().device_bytes_packed, 0U);
        }
      });

  const std::vector<emulated::CallRecord> all = emulated::collective_calls();
  std::size_t reductions = 0;
  for (std::size_t i = calls_before; i < all.size(); ++i) {
    if (all[i].api != "ncclAllReduce") continue;
    ++reductions;
  }
  // Batches of the plan are cut before the tensor with which they would exceed the threshold, so two neighbours exceed
  // it together.
  const std::int64_t batches = 2 * ((total + threshold - 1) / threshold);
  const std::int64_t allowed = batches + larger;
  std::printf("ResNet-50%s: 161 gradients, %lld bytes: %zu ncclAllReduce calls a rank and step (at most %lld)\n",
              in_arena ? " in an arena" : "", static_cast<long long>(total), reductions / kRanks,
              static_cast<long long>(allowed));
  EXPECT_EQ(reductions % kRanks, 0U);
  EXPECT_LE(static_cast<std::int64_t>(reductions / kRanks), allowed);
  EXPECT_GT(reductions, 0U);
}

TEST_F(Training, AStepOfResNet50TakesFewCallsAndOverlaps) { a_step_of_resnet50(false); }
TEST_F(Training, AStepOfResNet50InAnArenaPacksNothing) { a_step_of_resnet50(true); }

/// What a world of random steps consists of: drawn alike on all ranks.
std::vector<AnyArguments> draw(std::mt19937& random, int ranks, bool nccl) {
  std::vector<AnyArguments> drawn;
  while (drawn.size() < 6) {
    AnyArguments one;
    one.kind = random() % 2 == 0 ? core::CollectiveKind::allreduce : kKinds[random() % std::size(kKinds)];
    one.dtype = random() % 2 == 0 ? DType::float32 : kTypes[random() % std::size(kTypes)];
    one.op = static_cast<ReduceOp>(random() % 5);
    one.in_place = random() % 3 > 0;
    one.rows = static_cast<std::int64_t>(random() % 12);
    one.width = static_cast<std::int64_t>(random() % 8 == 0 ? 1 + random() % 1500 : 1 + random() % 15);
    one.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
    one.scaled = random() % 4 == 0;
    if (is_supported(one, nccl)) drawn.push_back(one);
  }
  return drawn;
}

/// One world: random collectives of random types, submitted in an order of its own by every rank, and waited for as
/// chance will have it. Returns how many collectives ran.
std::size_t random_steps(unsigned seed, int ranks, int steps, const char* backend) {
  emulated::Config machine;
  machine.devices = ranks;
  machine.seed = seed;
  emulated::reset(machine);
  std::mt19937 same(seed);
  const std::vector<AnyArguments> drawn = draw(same, ranks, std::string(backend) == "nccl");
  run_local(
      ranks,
      [&] {
        std::mt19937 own(seed * 31 + static_cast<unsigned>(rank()));
        bind();
        const RankStream streams[2];
        std::vector<AnyCollective> collectives;
        for (std::size_t i = 0; i < drawn.size(); ++i) {
          collectives.emplace_back("g" + std::to_string(i), drawn[i], streams[i % 2], own() % 4);
        }
        std::vector<std::size_t> order(collectives.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        for (int step = 0; step < steps; ++step) {
          if (own() % 4 == 0) std::shuffle(order.begin(), order.end(), own);
          std::vector<Handle> handles(collectives.size());
          for (const std::size_t i : order) handles[i] = collectives[i].start(step);
          const bool on_host = own() % 4 == 0;
          for (std::size_t i = 0; i < handles.size(); ++i) finish(handles[i], collectives[i], on_host);
          for (const AnyCollective& one : collectives) one.expect_result();
          wait_all(handles);
          end_step();
          ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << ", step " << step;
        }
      },
      Options{}
          .with_setting("KOLO_TIMEOUT_S", "300")
          .with_setting("KOLO_GPU_BACKEND", backend)
          .with_setting("KOLO_FUSION_THRESHOLD", seed % 5 == 0 ? "0" : "16K")
          .with_setting("KOLO_GPU_DIRECT_BYTES", seed % 3 == 0 ? "1K" : "24K"));
  emulated::drain();
  for (const emulated::Report& report : emulated::take_reports()) {
    ADD_FAILURE() << "seed " << seed << ": " << emulated::to_string(report.kind) << ": " << report.text;
  }
  return drawn.size() * static_cast<std::size_t>(steps);
}

void random_worlds(unsigned worlds, const char* backend) {
  constexpr int kSteps = kolo::testing::share_of(60);
  std::size_t collectives = 0;
  for (unsigned seed = 1; seed <= worlds && !::testing::Test::HasFailure(); ++seed) {
    collectives += random_steps(seed, 1 + static_cast<int>(seed % 4), kSteps, backend);
  }
  std::printf("%u random steps by way of %s, %zu collectives, in %u worlds of 1 to 4 ranks\n", worlds * kSteps, backend,
              collectives, worlds);
}

TEST_F(Training, RandomSteps) { random_worlds(kWorlds, "nccl"); }
TEST_F(Training, RandomStepsStaged) { random_worlds(kStagedWorlds, "staged"); }

}  // namespace
}  // namespace kolo::cuda::test
