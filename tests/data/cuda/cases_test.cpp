// SPDX-License-Identifier: Apache-2.0
//
// The cases of tests/support/cases.hpp on devices: every collective in every form and group, through a buffer and where
// it lies, by all ranks and without one that has joined, on a device that does everything late.
#include "tests/support/cases.hpp"

#include <cstdio>
#include <memory>
#include <string>
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

/// How many ranks, by what, whether tensors are reduced where they lie, and whether the last rank of each group joins.
struct CaseWorld {
  int ranks;
  On on;
  bool direct = false;
  bool last_joins = false;
};
class CasesOnDevices : public CudaTest, public ::testing::WithParamInterface<CaseWorld> {};

TEST_P(CasesOnDevices, EveryByte) {
  const auto [ranks, on, direct, last_joins] = GetParam();
  const kolo::testing::Cases cases = kolo::testing::cases_of({{ranks}, true, on, last_joins}, 2);
  for (const Nodes nodes : {Nodes::one, Nodes::even, Nodes::uneven}) {
    const std::vector<kolo::testing::Row> rows = rows_of(cases, ranks, nodes);
    if (rows.empty()) continue;
    run_local(
        ranks,
        [&, joins = last_joins] {
          EmulatedDevice device;
          kolo::testing::run_cases(
              world(), rows, [](const std::string& what) { ADD_FAILURE() << what << " on rank " << rank(); }, &device,
              joins);
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

std::vector<CaseWorld> case_worlds() {
  std::vector<CaseWorld> all{{2, On::nccl}, {3, On::nccl, true}, {3, On::staged}, {3, On::nccl, true, true}};
  if (kolo::testing::kSanitized) return all;
  all.insert(all.end(), {{1, On::nccl}, {4, On::nccl}, {1, On::staged}, {2, On::staged}, {4, On::staged}});
  all.insert(all.end(), {{2, On::nccl, false, true}, {4, On::nccl, true, true}, {4, On::staged, false, true}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(By, CasesOnDevices, ::testing::ValuesIn(case_worlds()), [](const auto& info) {
  return std::string(info.param.on == On::nccl ? "Nccl" : "Staged") + std::to_string(info.param.ranks) +
         (info.param.direct ? "Direct" : "") + (info.param.last_joins ? "WithoutTheLast" : "");
});

}  // namespace
}  // namespace kolo::cuda::test
