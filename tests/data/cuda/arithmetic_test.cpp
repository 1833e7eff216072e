// SPDX-License-Identifier: Apache-2.0
//
// What is added in which type, and scaled when: results on the device beside the CPU's, and averages whose sums would
// overflow.
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include <kolo/gradient_arena.hpp>

#include "base/half.hpp"
#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {
namespace {

/// Number of ranks; KOLO_GPU_BACKEND.
class Arithmetic : public CudaTest, public ::testing::WithParamInterface<std::tuple<int, const char*>> {
 protected:
  void SetUp() override {
    emulated::Config config = machine();
    config.devices = 8;
    emulated::reset(config);
  }
  static int ranks() { return std::get<0>(GetParam()); }
  static bool is_staged() { return std::string(std::get<1>(GetParam())) == "staged"; }
  static Options options() {
    return CudaTest::options()
        .with_setting("KOLO_GPU_BACKEND", std::get<1>(GetParam()))
        .with_setting("KOLO_GPU_DIRECT_BYTES", "16K");
  }
};

/// Numbers whose sums and products must be rounded.
Bytes awkward(DType dtype, std::int64_t elements, int of) {
  Bytes bytes(static_cast<std::size_t>(elements) * size_of(dtype));
  const auto put = [&](std::int64_t i, auto element) {
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof element, &element, sizeof element);
  };
  for (std::int64_t i = 0; i < elements; ++i) {
    const double value = static_cast<double>((i * 7919 + of * 104729) % 20011) / 7.0 - 1000.0;
    if (dtype == DType::float64) put(i, value);
    if (dtype == DType::float32) put(i, static_cast<float>(value));
    if (dtype == DType::float16) put(i, base::to_float16(static_cast<float>(value)));
    if (dtype == DType::bfloat16) put(i, base::to_bfloat16(static_cast<float>(value)));
  }
  return bytes;
}

TEST_P(Arithmetic, ResultsHaveTheBitsOfTheCpus) {
  // NCCL adds 16-bit floats in their own type.
  std::vector<DType> types{DType::float32, DType::float64};
  if (is_staged()) types.insert(types.end(), {DType::float16, DType::bfloat16});
  run_local(
      ranks(),
      [&] {
        bind();
        const RankStream stream;
        for (const DType dtype : types) {
          for (const std::int64_t elements : {333, 4500}) {  // through a slot, and by NCCL where they lie
            const Bytes input = awkward(dtype, elements, rank());
            for (const AllreduceOptions& how : {AllreduceOptions{}, AllreduceOptions{}.with_op(ReduceOp::average),
                                                AllreduceOptions{}.with_op(ReduceOp::average).with_postscale(0.7),
                                                AllreduceOptions{}.with_prescale(0.3).with_postscale(0.7),
                                                AllreduceOptions{}.with_op(ReduceOp::average).with_prescale(0.3),
                                                AllreduceOptions{}.with_op(ReduceOp::max).with_prescale(-0.3)}) {
              Bytes host = input;
              allreduce("host", TensorView(host.data(), dtype, Shape{elements}), how);
              DeviceTensor device(dtype, elements, stream);
              device.write(input);
              Handle handle = allreduce_async("device", device.view(), how);
              follow(handle, stream);
              EXPECT_TRUE(device.read() == host)
                  << elements << " " << to_string(dtype) << ", " << to_string(how.op) << ", prescale " << how.prescale
                  << ", postscale " << how.postscale << ", rank " << rank();
              handle.wait();
            }
          }
        }
      },
      options());
}

/// Averages that a 16-bit float holds, though it does not hold the sums.
TEST_P(Arithmetic, SumsOfAveragesDoNotOverflow) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        constexpr std::int64_t kElements = 8400;  // more than KOLO_GPU_DIRECT_BYTES
        const auto average = AllreduceOptions{}.with_op(ReduceOp::average);
        for (const DType dtype : {DType::float16, DType::bfloat16}) {
          // Sums of these overflow; the CPU's, in float32, do not.
          const float value = dtype == DType::float16 || is_staged() ? 61440.0F : 61440.0F * 0x1p112F;
          const std::uint16_t bits =
              dtype == DType::float16 ? base::to_float16(value).bits : base::to_bfloat16(value).bits;
          Bytes all(kElements * 2);
          for (std::size_t i = 0; i < all.size(); i += 2) std::memcpy(all.data() + i, &bits, sizeof bits);
          const auto some = [&](std::int64_t elements) { return Bytes(all.begin(), all.begin() + elements * 2); };
          for (const std::int64_t elements : {std::int64_t{100}, kElements}) {
            DeviceTensor x(dtype, elements, stream);
            x.write(some(elements));
            Handle handle = allreduce_async("x", x.view(), average);
            follow(handle, stream);
            EXPECT_TRUE(x.read() == some(elements)) << elements << " " << to_string(dtype);
            handle.wait();

            const std::int64_t rows = elements / size();
            DeviceTensor in(dtype, rows * size(), stream);
            DeviceTensor out(dtype, rows, stream);
            in.write(some(rows * size()));
            Handle scattered = reduce_scatter_into_async("rs", in.view(), out.view(), average);
            follow(scattered, stream);
            EXPECT_TRUE(out.read() == some(rows)) << elements << " " << to_string(dtype) << ", reduce_scatter";
            scattered.wait();
          }
          GradientArena arena(kElements * 2, Device{DeviceKind::cuda, bind()});
          const TensorView inside = arena.allocate(dtype, Shape{100}, Stream{stream});
          ok(cudaMemcpyAsync(inside.data(), all.data(), 200, cudaMemcpyHostToDevice, stream));
          Handle handle = allreduce_async("inside", inside, average);
          follow(handle, stream);
          Bytes result(200);
          ok(cudaMemcpyAsync(result.data(), inside.data(), 200, cudaMemcpyDeviceToHost, stream));
          stream.synchronize();
          EXPECT_TRUE(result == some(100)) << to_string(dtype) << ", in an arena";
          handle.wait();
          emulated::acquire_all();
        }
      },
      options());
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<int, const char*>>& info) {
  return std::to_string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
}

#ifdef KOLO_ON_REAL_DEVICE
INSTANTIATE_TEST_SUITE_P(OfOne, Arithmetic, ::testing::Combine(::testing::Values(1), ::testing::Values("nccl")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Staged, Arithmetic, ::testing::Combine(::testing::Values(3, 8), ::testing::Values("staged")),
                         name_of);
#else
INSTANTIATE_TEST_SUITE_P(Worlds, Arithmetic,
                         ::testing::Combine(::testing::Values(3, 8), ::testing::Values("nccl", "staged")), name_of);
#endif

}  // namespace
}  // namespace kolo::cuda::test
