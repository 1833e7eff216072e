// SPDX-License-Identifier: Apache-2.0
//
// Steps of training: what the number of NCCL calls is, who makes them and when, and thousands of random steps.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include <kolo/info.hpp>

#include "tests/cuda/rank_device.hpp"

namespace kolo::cuda::test {
namespace {

/// The elements of ResNet-50's 161 parameters, in the order in which backward produces their gradients: the last first.
std::vector<std::int64_t> resnet50() {
  std::vector<std::int64_t> sizes{64 * 3 * 7 * 7, 64, 64};
  std::int64_t inputs = 64;
  const std::int64_t blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = std::int64_t{64} << stage;
    for (std::int64_t block = 0; block < blocks[stage]; ++block) {
      for (const auto& [weights, outputs] : {std::pair(inputs * width, width), std::pair(width * width * 9, width),
                                             std::pair(width * width * 4, width * 4)}) {
        sizes.insert(sizes.end(), {weights, outputs, outputs});
      }
      if (block == 0) sizes.insert(sizes.end(), {inputs * width * 4, width * 4, width * 4});
      inputs = width * 4;
    }
  }
  sizes.insert(sizes.end(), {2048 * 1000, 1000});
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

class Training : public CudaTest {};

/// Worlds of random steps: fewer where a sanitizer makes each of them many times as long.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr unsigned kWorlds = 12;
constexpr unsigned kStagedWorlds = 4;
#else
constexpr unsigned kWorlds = 36;
constexpr unsigned kStagedWorlds = 14;
#endif

TEST_F(Training, AStepOfResNet50TakesFewCallsAndOverlaps) {
  constexpr int kRanks = 2;
  constexpr int kSteps = 3;
  const std::int64_t threshold = std::int64_t{16} << 20;
  const std::int64_t direct = std::int64_t{8} << 20;
  const std::vector<std::int64_t> sizes = resnet50();
  ASSERT_EQ(sizes.size(), 161U);
  std::int64_t total = 0;
  std::int64_t larger = 0;
  for (const std::int64_t size : sizes) {
    total += size * 4;
    larger += size * 4 >= direct ? 1 : 0;
  }
  EXPECT_EQ(total, 25557032 * 4);

  std::mutex mutex;
  std::set<std::thread::id> callers;
  std::atomic<std::uint64_t> calls_before{0};
  run_local(
      kRanks,
      [&] {
        {
          const std::lock_guard lock(mutex);
          callers.insert(std::this_thread::get_id());
        }
        bind();
        const RankStream stream;
        std::vector<std::unique_ptr<DeviceTensor>> gradients;
        for (const std::int64_t size : sizes) {
          gradients.push_back(std::make_unique<DeviceTensor>(DType::float32, size, stream));
          ok(cudaMemsetAsync(gradients.back()->data(), 0, gradients.back()->bytes(), stream));
        }
        for (int step = 0; step < kSteps; ++step) {
          if (step == kSteps - 1) {
            barrier();
            if (rank() == 0) calls_before = emulated::collective_calls().size();
            barrier();
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
            handles.push_back(allreduce_async("g" + std::to_string(i), gradients[i]->view(),
                                              AllreduceOptions{}.with_op(ReduceOp::average)));
          }
          for (Handle& handle : handles) follow(handle, stream);
          wait_all(handles);
          end_step();
        }
        stream.synchronize();
      },
      options());

  const std::vector<emulated::CallRecord> all = emulated::collective_calls();
  std::size_t reductions = 0;
  std::set<std::thread::id> issuers;
  for (std::size_t i = calls_before; i < all.size(); ++i) {
    if (all[i].api != "ncclAllReduce") continue;
    ++reductions;
    issuers.insert(all[i].thread);
  }
  // Batches of the plan are cut before the tensor with which they would exceed the threshold, so two neighbours exceed
  // it together.
  const std::int64_t batches = 2 * ((total + threshold - 1) / threshold);
  const std::int64_t allowed = batches + larger;
  std::printf("ResNet-50: 161 gradients, %lld bytes: %zu ncclAllReduce calls a rank and step (at most %lld)\n",
              static_cast<long long>(total), reductions / kRanks, static_cast<long long>(allowed));
  EXPECT_EQ(reductions % kRanks, 0U);
  EXPECT_LE(static_cast<std::int64_t>(reductions / kRanks), allowed);
  EXPECT_GT(reductions, 0U);
  EXPECT_EQ(issuers.size(), static_cast<std::size_t>(kRanks)) << "each rank's calls come from one thread";
  for (const std::thread::id caller : callers) EXPECT_EQ(issuers.count(caller), 0U) << "not from the caller's";
}

/// One world: random tensors of random types, in and out of place, submitted in an order of its own by every rank.
void random_steps(unsigned seed, int ranks, int steps, const char* backend) {
  emulated::Config machine;
  machine.devices = ranks;
  machine.seed = seed;
  emulated::reset(machine);
  run_local(
      ranks,
      [&] {
        std::mt19937 same(seed);
        std::mt19937 own(seed * 31 + static_cast<unsigned>(rank()));
        bind();
        const RankStream streams[2];
        const DType types[] = {DType::float32, DType::float16, DType::int32, DType::boolean};
        struct Gradient {
          std::unique_ptr<DeviceTensor> in;
          std::unique_ptr<DeviceTensor> out;
          cudaStream_t stream;
        };
        std::vector<Gradient> gradients;
        for (int i = 0; i < 6; ++i) {
          const DType dtype = types[same() % 4];
          const auto elements = static_cast<std::int64_t>(same() % 8 == 0 ? same() % 20000 : same() % 200);
          Gradient gradient;
          gradient.stream = streams[same() % 2];
          gradient.in = std::make_unique<DeviceTensor>(dtype, elements, gradient.stream, own() % 4 * size_of(dtype));
          if (same() % 3 == 0) gradient.out = std::make_unique<DeviceTensor>(dtype, elements, gradient.stream);
          gradients.push_back(std::move(gradient));
        }
        std::vector<std::size_t> order(gradients.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
        for (int step = 0; step < steps; ++step) {
          if (own() % 4 == 0) std::shuffle(order.begin(), order.end(), own);
          std::vector<Handle> handles(gradients.size());
          for (const std::size_t i : order) {
            const Gradient& one = gradients[i];
            const TensorView in = one.in->view();
            one.in->write(elements_of(in.dtype(), in.elements(), [&](std::int64_t k) {
              return exact::value_of(in.dtype(), ReduceOp::sum, k + step, rank(), size());
            }));
            const std::string name = "g" + std::to_string(i);
            handles[i] = one.out ? allreduce_into_async(name, in, one.out->view()) : allreduce_async(name, in);
          }
          const bool on_host = own() % 4 == 0;
          for (std::size_t i = 0; i < handles.size(); ++i) {
            if (on_host) {
              handles[i].wait();
            } else {
              follow(handles[i], gradients[i].stream);
            }
          }
          if (on_host) emulated::acquire_all();
          for (const Gradient& one : gradients) {
            const TensorView view = one.in->view();
            const auto wanted = elements_of(view.dtype(), view.elements(), [&](std::int64_t k) {
              return exact::reduced_value(view.dtype(), ReduceOp::sum, k + step, size());
            });
            ASSERT_EQ((one.out ? *one.out : *one.in).read(), wanted) << "seed " << seed << ", step " << step;
          }
          wait_all(handles);
          end_step();
        }
      },
      Options{}
          .with_setting("KOLO_TIMEOUT_S", "60")
          .with_setting("KOLO_GPU_BACKEND", backend)
          .with_setting("KOLO_FUSION_THRESHOLD", "16K")
          .with_setting("KOLO_GPU_DIRECT_BYTES", "24K"));
  emulated::drain();
  for (const emulated::Report& report : emulated::take_reports()) {
    ADD_FAILURE() << "seed " << seed << ": " << emulated::to_string(report.kind) << ": " << report.text;
  }
}

TEST_F(Training, RandomSteps) {
  for (unsigned seed = 1; seed <= kWorlds; ++seed) random_steps(seed, 1 + static_cast<int>(seed % 4), 60, "nccl");
}

TEST_F(Training, RandomStepsStaged) {
  for (unsigned seed = 1; seed <= kStagedWorlds; ++seed)
    random_steps(seed, 1 + static_cast<int>(seed % 4), 60, "staged");
}

}  // namespace
}  // namespace kolo::cuda::test
