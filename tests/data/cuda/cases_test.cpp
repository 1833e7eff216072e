// SPDX-License-Identifier: Apache-2.0
//
// The cases of tests/support/cases.hpp on devices: every collective in every form and group, through a slot and where
// it lies, on a device that does everything late.
#include "tests/support/cases.hpp"

#include <cstdio>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/data/cuda/rank_device.hpp"
#include "tests/support/operation.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::cuda::test {
namespace {

using kolo::testing::Nodes;
using kolo::testing::On;

class EmulatedDevice : public kolo::testing::Accelerator {
 public:
  EmulatedDevice() : device_{DeviceKind::cuda, bind()} {}
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    ok(cudaMalloc(&memory, bytes));
    return {static_cast<std::byte*>(memory), [](std::byte* done) { ok(cudaFree(done)); }};
  }
  void write(std::byte* there, const std::byte* here, std::size_t bytes) override {
    ok(cudaMemcpyAsync(there, here, bytes, cudaMemcpyHostToDevice, stream_));
  }
  void read(std::byte* here, const std::byte* there, std::size_t bytes) override {
    emulated::acquire_all();  // the host knows that the operation is over
    ok(cudaMemcpyAsync(here, there, bytes, cudaMemcpyDeviceToHost, stream_));
    stream_.synchronize();
  }
  [[nodiscard]] Device device() const override { return device_; }
  [[nodiscard]] Stream stream() const override { return Stream{stream_}; }

 private:
  const Device device_;
  const RankStream stream_;
};

/// How many ranks, by what, and whether tensors are reduced where they lie.
class CasesOnDevices : public CudaTest, public ::testing::WithParamInterface<std::tuple<int, On, bool>> {};

TEST_P(CasesOnDevices, EveryByte) {
  const auto& [ranks, on, direct] = GetParam();
  const kolo::testing::Cases cases = kolo::testing::cases_of({{ranks}, true, on}, 2);
  for (const Nodes nodes : {Nodes::one, Nodes::even, Nodes::uneven}) {
    const std::vector<kolo::testing::Row> rows = rows_of(cases, ranks, nodes);
    if (rows.empty()) continue;
    run_local(
        ranks,
        [&] {
          EmulatedDevice device;
          kolo::testing::run_cases(
              world(), rows, [](const std::string& what) { ADD_FAILURE() << what << " on rank " << rank(); }, &device);
        },
        options()
            .with_setting("KOLO_GPU_BACKEND", on == On::nccl ? "nccl" : "staged")
            .with_setting("KOLO_FUSION_THRESHOLD", "64K")
            .with_setting("KOLO_GPU_DIRECT_BYTES", direct ? "1" : "1M")
            .with_setting("KOLO_RANKS_PER_NODE", std::to_string(kolo::testing::ranks_per_node(ranks, nodes))));
    expect_no_reports();
  }
  std::printf("%s\n", describe(cases).c_str());
}

std::vector<std::tuple<int, On, bool>> worlds() {
  std::vector<std::tuple<int, On, bool>> all{{2, On::nccl, false}, {3, On::nccl, true}, {3, On::staged, false}};
  if (kolo::testing::kSanitized) return all;
  all.insert(all.end(), {{1, On::nccl, false}, {4, On::nccl, false}});
  all.insert(all.end(), {{1, On::staged, false}, {2, On::staged, false}, {4, On::staged, false}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(By, CasesOnDevices, ::testing::ValuesIn(worlds()), [](const auto& info) {
  return std::string(std::get<1>(info.param) == On::nccl ? "Nccl" : "Staged") +
         std::to_string(std::get<0>(info.param)) + (std::get<2>(info.param) ? "Direct" : "");
});

}  // namespace
}  // namespace kolo::cuda::test
