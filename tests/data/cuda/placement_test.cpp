// SPDX-License-Identifier: Apache-2.0
//
// KOLO_LOG_PLACEMENT: one record for each tensor, that says where it is reduced, by what, and why.
#include <algorithm>
#include <functional>
#include <mutex>

#include <kolo/gradient_arena.hpp>

#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {
namespace {

class PlacementLog : public CudaTest {
 protected:
  /// Of rank 0's records those of placements, in the order of the alphabet.
  std::vector<std::string> records_of(int ranks, const Options& with, const std::function<void()>& body) {
    records_.clear();
    run_local(ranks, body,
              Options(with).with_setting("KOLO_LOG_PLACEMENT", "1").with_log_sink([&](const LogRecord& one) {
                const std::lock_guard<std::mutex> lock(mutex_);
                const bool is_arenas = one.message.find("GradientArena") != std::string::npos;  // how its ranks meet
                if (one.rank == 0 && !is_arenas)
                  records_.push_back(std::string(to_string(one.level)) + ": " + one.message);
              }));
    std::sort(records_.begin(), records_.end());
    return records_;
  }
  static void reduce(const std::string& name, const TensorView& x, const AllreduceOptions& with = {}) {
    allreduce(name, x, with);
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> records_;
};

using Records = std::vector<std::string>;

TEST_F(PlacementLog, TensorsOfADeviceSayWhereTheyGo) {
  const auto body = [] {
    const int device = bind();
    const RankStream stream;
    const DeviceTensor small(DType::float32, 16, stream);
    const DeviceTensor large(DType::float32, 4096, stream);
    const DeviceTensor truth(DType::boolean, 16, stream);
    for (const DeviceTensor* tensor : {&small, &large, &truth}) tensor->write(Bytes(tensor->bytes()));
    GradientArena arena(4096, Device{DeviceKind::cuda, device}, "arena");
    const TensorView placed = arena.allocate(DType::float32, Shape{16}, Stream{stream});
    for (int step = 0; step < 3; ++step) {  // once a tensor
      reduce("placed", placed);
      reduce("small", small.view());
      reduce("large", large.view());
      reduce("sent", large.view(), AllreduceOptions{}.with_send_as(DType::float16));
      reduce("scaled", large.view(), AllreduceOptions{}.with_prescale(2.0));
      reduce("truth", truth.view(), ReduceOp::max);
      broadcast("moved", small.view(), 0);
    }
    stream.synchronize();
  };
  const Options direct = options().with_setting("KOLO_GPU_DIRECT_BYTES", "4K");
  const std::string least = "KOLO_GPU_DIRECT_BYTES (4096)";
  const Records records = records_of(2, direct, body);
  const std::string by_nccl = " bytes: on cuda:0 by NCCL, ";
  EXPECT_EQ(
      records,
      (Records{"info: allreduce of \"large\", 16384" + by_nccl + "where it lies, because it has at least " + least,
               "info: allreduce of \"placed\", 64" + by_nccl +
                   "where it lies, because all ranks have it at the same place of an arena",
               "info: allreduce of \"scaled\", 16384" + by_nccl +
                   "through a fusion buffer, because it is multiplied before it is reduced (prescale)",
               "info: allreduce of \"sent\", 16384" + by_nccl +
                   "through a fusion buffer, because it is sent as another type",
               "info: allreduce of \"small\", 64" + by_nccl +
                   "where it lies, because no other tensor would share its collective",
               "info: allreduce of \"truth\", 16" + by_nccl +
                   "through a fusion buffer, because booleans are made 0 or 1 before they are reduced",
               "info: broadcast of \"moved\", 64" + by_nccl + "where it lies, because it is moved, not reduced"}));
  const Options staged = options().with_setting("KOLO_GPU_BACKEND", "staged");
  for (const std::string& record : records_of(2, staged, body)) {
    EXPECT_NE(
        record.find(" bytes: on cuda:0 by pinned memory, through a fusion buffer, because the CPU reduces what is "
                    "in one (KOLO_GPU_BACKEND is staged)"),
        std::string::npos)
        << record;
  }
}

TEST_F(PlacementLog, TensorsOfTheCpuSayWhereTheyGo) {
  const auto body = [] {
    std::vector<float> x(100'000);
    std::vector<float> y(100'000);
    GradientArena arena(std::size_t{1} << 20, "arena");
    const TensorView placed = arena.allocate(DType::float32, Shape{100'000});
    const TensorView few = arena.allocate(DType::float32, Shape{10});
    for (int step = 0; step < 3; ++step) {
      reduce("x", kolo::view(x));
      reduce("placed", placed);
      reduce("few", few);
      reduce("sent", placed, AllreduceOptions{}.with_send_as(DType::float16));
      allreduce_into_async("away", placed, kolo::view(y)).wait();
      broadcast("moved", placed, 0);
    }
  };
  const Records records = records_of(2, options(), body);
  const std::string slots = " bytes: on the CPU, through slots, because ";
  EXPECT_EQ(
      records,
      (Records{"info: allreduce of \"away\", 400000" + slots + "its result goes to another place than the arena",
               "info: allreduce of \"few\", 40 bytes: on the CPU, by the flat route, because its batch is so short "
               "(KOLO_ROUTES)",
               "info: allreduce of \"placed\", 400000 bytes: on the CPU, where it lies, because it is in an arena "
               "of the group",
               "info: allreduce of \"sent\", 400000" + slots + "it is sent as another type",
               "info: allreduce of \"x\", 400000" + slots + "it lies in no arena of the group",
               "info: broadcast of \"moved\", 400000" + slots + "no broadcast is done in an arena"}));
  EXPECT_EQ(
      records_of(1, options(),
                 [] {
                   std::vector<float> x(10);
                   reduce("x", kolo::view(x));
                 }),
      Records{"info: allreduce of \"x\", 40 bytes: on the CPU, where it lies, because nobody else is in the group"});
}

TEST_F(PlacementLog, TensorsOfAGroupedCallAreNamedOneByOne) {
  const Records records = records_of(2, options(), [] {
    std::vector<float> x(10);
    std::vector<float> y(20);
    const std::vector<NamedView> both{{"x", kolo::view(x)}, {"y", kolo::view(y)}};
    for (int step = 0; step < 2; ++step) grouped_allreduce_async("both", both).wait();
  });
  const std::string slots = " bytes: on the CPU, through slots, because it lies in no arena of the group";
  EXPECT_EQ(records, (Records{"info: allreduce of \"x\" of the group \"both\", 40" + slots,
                              "info: allreduce of \"y\" of the group \"both\", 80" + slots}));
}

}  // namespace
}  // namespace kolo::cuda::test
