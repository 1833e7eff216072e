// SPDX-License-Identifier: Apache-2.0
//
// KOLO_GPU_MEMORY_LIMIT: four ranks on one device, each within its limit; what exceeds it is an error on every rank
// that names both numbers.
#include "data/cuda/memory_limit.hpp"

#include <string>

#include <kolo/detail/counters.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>

#include "data/cuda/cuda_backend.hpp"
#include "data/cuda/move.hpp"
#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {
namespace {

constexpr int kRanks = 4;
constexpr std::uint64_t kTableBytes = std::uint64_t{32} * 4096 * sizeof(Chunk);
constexpr std::uint64_t kArena = 256 << 10;

std::uint64_t buffer_bytes(const std::string& backend) {
  return buffer_bytes_for(1 << 20, kRanks, backend == "staged");
}
std::uint64_t needed(const std::string& backend) { return 3 * buffer_bytes(backend) + kTableBytes; }

class LimitedMemory : public CudaTest {
 protected:
  /// One device, with no more than what the ranks may take and their tensors do.
  static void one_device(std::uint64_t limit) {
    emulated::Config config;
    config.devices = 1;
    config.device_bytes = kRanks * limit + (64 << 10);
    emulated::reset(config);
  }
  static Options limited(const char* backend, std::uint64_t limit) {
    return options()
        .with_setting("KOLO_SHARE_DEVICE", "1")
        .with_setting("KOLO_GPU_BACKEND", backend)
        .with_setting("KOLO_GPU_MEMORY_LIMIT", std::to_string(limit));
  }
  static void reduce(const TensorView& x) {
    write(x, elements_of(DType::float32, x.elements(), [](std::int64_t i) { return i + rank(); }));
    EXPECT_EQ(result_of(allreduce_async("x", x), x),
              elements_of(DType::float32, x.elements(), [](std::int64_t i) { return 4 * i + 6; }));
  }
};

TEST_F(LimitedMemory, FourRanksStayWithinTheirLimitOnOneDevice) {
  for (const char* backend : {"nccl", "staged"}) {
    const std::uint64_t limit = needed(backend) + kArena;
    one_device(limit);
    on_devices(kRanks, limited(backend, limit), [&](const RankStream& stream) {
      reduce(DeviceTensor(DType::float32, 1000, stream).view());
      GradientArena arena(kArena, own_device());
      reduce(arena.allocate(DType::float32, Shape{1000}, Stream{stream}));
      EXPECT_EQ(kolo::detail::counters().device_buffer_bytes, 3 * buffer_bytes(backend));
      EXPECT_EQ(kolo::detail::counters().device_arena_bytes, kArena);
      barrier();
    });
  }
}

TEST_F(LimitedMemory, BuffersBeyondTheLimitFailOnEveryRankAndTheJobGoesOn) {
  for (const char* backend : {"nccl", "staged"}) {
    const std::uint64_t limit = needed(backend);
    one_device(limit);
    on_devices(kRanks, limited(backend, limit - 1), [&](const RankStream& stream) {
      const DeviceTensor x(DType::float32, 4, stream);
      EXPECT_EQ(sentence_of(ErrorCode::out_of_memory, [&] { allreduce("x", x.view()); }),
                "rank 0 cannot use its GPU: what batches need, 3 fusion buffers of " +
                    std::to_string(buffer_bytes(backend)) + " bytes and tables, would take " + std::to_string(limit) +
                    " bytes of the GPU, but KOLO_GPU_MEMORY_LIMIT allows " + std::to_string(limit - 1) +
                    ", of which 0 are in use: raise it, or lower KOLO_FUSION_THRESHOLD or KOLO_GPU_BUFFERS");
      stream.synchronize();
      std::vector<float> host{1};
      allreduce(kolo::view(host));
      EXPECT_EQ(host.front(), 4);
    });
  }
}

TEST_F(LimitedMemory, AnArenaBeyondTheLimitFailsOnEveryRankAndAnotherOneFits) {
  const std::uint64_t limit = needed("nccl") + kArena;
  one_device(limit);
  on_devices(kRanks, limited("nccl", limit), [&](const RankStream& stream) {
    const Device device{DeviceKind::cuda, bind()};
    EXPECT_EQ(sentence_of(ErrorCode::out_of_memory, [&] { const GradientArena arena(kArena + 4096, device, "large"); }),
              "GradientArena(large): rank 0: the arena would take " + std::to_string(kArena + 4096) +
                  " bytes of the GPU, but KOLO_GPU_MEMORY_LIMIT allows " + std::to_string(limit) + ", of which " +
                  std::to_string(limit - kArena) + " are in use: raise it, or make the arena smaller");
    const DeviceTensor x(DType::float32, 100, stream);
    for (int again = 0; again < 2; ++again) {
      {
        GradientArena arena(kArena, device, "fits");
        reduce(arena.allocate(DType::float32, Shape{100}, Stream{stream}));
      }
      reduce(x.view());  // at its end what the arena had is given back, and counts no more
    }
  });
}

TEST_F(LimitedMemory, WithoutALimitEverythingIsAllowed) {
  MemoryLimit none(0);
  none.take(std::uint64_t{1} << 50, "it", "");
  EXPECT_EQ(none.used(), std::uint64_t{1} << 50);
  MemoryLimit one(10);
  one.take(10, "it", "");
  EXPECT_EQ(
      sentence_of(ErrorCode::out_of_memory, [&] { one.take(1, "it", "wait"); }),
      "it would take 1 bytes of the GPU, but KOLO_GPU_MEMORY_LIMIT allows 10, of which 10 are in use: raise it, or "
      "wait");
  one.give_back(4);
  one.take(4, "it", "");
}

}  // namespace
}  // namespace kolo::cuda::test
