// SPDX-License-Identifier: Apache-2.0
//
// What is added in which type, and scaled when: results on the device beside the CPU's, and averages whose sums would
// overflow.
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include <kolo/gradient_arena.hpp>

#include "base/half.hpp"
#include "data/kernels/reduction.hpp"
#include "tests/data/cuda/rank_device.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::cuda::test {
namespace {

class Arithmetic : public CudaWorlds {
 protected:
  void SetUp() override {
    emulated::Config config = machine();
    config.devices = 8;
    emulated::reset(config);
  }
  static Options options() { return CudaWorlds::options().with_setting("KOLO_GPU_DIRECT_BYTES", "16K"); }
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
  on_devices(ranks(), options(), [&](const RankStream& stream) {
    for (const DType dtype : types) {
      for (const std::int64_t elements : {333, 4500}) {  // through a buffer, and by NCCL where they lie
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
          EXPECT_TRUE(result_of(allreduce_async("device", device.view(), how), device) == host)
              << elements << " " << to_string(dtype) << ", " << to_string(how.op) << ", prescale " << how.prescale
              << ", postscale " << how.postscale << ", rank " << rank();
        }
      }
    }
  });
}

/// Averages that a 16-bit float holds, though it does not hold the sums.
TEST_P(Arithmetic, SumsOfAveragesDoNotOverflow) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    constexpr std::int64_t kElements = 8400;  // more than KOLO_GPU_DIRECT_BYTES
    const auto average = ReduceOp::average;
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      // Sums of these overflow; the CPU's, in float32, do not.
      const float value = dtype == DType::float16 || is_staged() ? 61440.0F : 61440.0F * 0x1p112F;
      const std::uint16_t bits = dtype == DType::float16 ? base::to_float16(value).bits : base::to_bfloat16(value).bits;
      Bytes all(kElements * 2);
      for (std::size_t i = 0; i < all.size(); i += 2) std::memcpy(all.data() + i, &bits, sizeof bits);
      const auto some = [&](std::int64_t elements) { return Bytes(all.begin(), all.begin() + elements * 2); };
      for (const std::int64_t elements : {std::int64_t{100}, kElements}) {
        DeviceTensor x(dtype, elements, stream);
        x.write(some(elements));
        EXPECT_TRUE(result_of(allreduce_async("x", x.view(), average), x) == some(elements))
            << elements << " " << to_string(dtype);

        const std::int64_t rows = elements / size();
        DeviceTensor in(dtype, rows * size(), stream);
        DeviceTensor out(dtype, rows, stream);
        in.write(some(rows * size()));
        EXPECT_TRUE(result_of(reduce_scatter_into_async("rs", in.view(), out.view(), average), out) == some(rows))
            << elements << " " << to_string(dtype) << ", reduce_scatter";
      }
      GradientArena arena(kElements * 2, own_device());
      const TensorView inside = arena.allocate(dtype, Shape{100}, Stream{stream});
      write(inside, some(100));
      EXPECT_TRUE(result_of(allreduce_async("inside", inside, average), inside) == some(100))
          << to_string(dtype) << ", in an arena";
      emulated::acquire_all();
    }
  });
}

/// Elements of a float type that are these numbers, each rounded to nearest once.
Bytes rounded(DType dtype, const std::vector<double>& numbers) {
  Bytes bytes(numbers.size() * size_of(dtype));
  kolo::kernels::cast(DType::float64, numbers.data(), dtype, bytes.data(), static_cast<std::int64_t>(numbers.size()));
  return bytes;
}
std::vector<double> numbers_in(DType dtype, const Bytes& bytes) {
  std::vector<double> numbers(bytes.size() / size_of(dtype));
  kolo::kernels::cast(dtype, bytes.data(), DType::float64, numbers.data(), static_cast<std::int64_t>(numbers.size()));
  return numbers;
}

/// Numbers that 16 bits do not hold; some are beyond their range, below it, or all but halfway between two of them.
std::vector<double> rough(std::int64_t elements, int of) {
  std::vector<double> numbers = numbers_in(DType::float64, awkward(DType::float64, elements, of));
  const double some[] = {1e6, 1e39, 1e-6, -3e-8, 1e-42, 1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 - 0x1p-50, -0.0};
  for (std::size_t i = 0; i < std::size(some); ++i) numbers[(i * 3 + static_cast<std::size_t>(of)) % 29] = some[i];
  return numbers;
}

const AllreduceOptions kScalings[] = {AllreduceOptions{},
                                      AllreduceOptions{}.with_prescale(0.3),
                                      AllreduceOptions{}.with_prescale(0.3).with_postscale(0.7),
                                      AllreduceOptions{}.with_op(ReduceOp::max).with_prescale(-0.3),
                                      AllreduceOptions{}.with_op(ReduceOp::average).with_postscale(0.7),
                                      AllreduceOptions{}.with_op(ReduceOp::average).with_prescale(0.3)};
// The last takes several buffers; one scaling and two pairs of types are enough of it.
constexpr std::int64_t kLengths[] = {29, 333, 4500, kolo::testing::unless_sanitized(1'200'001, 30'001)};
bool is_tried(std::int64_t elements, DType dtype, DType narrow, const AllreduceOptions& how) {
  return elements < 5000 || (&how == &kScalings[2] && (dtype == DType::float32) == (narrow == DType::bfloat16));
}

/// What is sent as 16 bits gives what tensors of that type give whose elements were scaled and rounded before; staged,
/// what the CPU gives, too. A rank alone sends nothing, and rounds nothing.
TEST_P(Arithmetic, SentAs16BitsIsReducedAsThose) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      for (const DType narrow : {DType::float16, DType::bfloat16}) {
        for (const std::int64_t elements : kLengths) {
          for (const AllreduceOptions& how : kScalings) {
            const bool averages = how.op == ReduceOp::average;
            if (averages && !is_staged()) continue;  // those are divided before they are rounded
            if (!is_tried(elements, dtype, narrow, how)) continue;
            const Bytes input = rounded(dtype, rough(elements, rank()));
            std::vector<double> scaled = numbers_in(dtype, input);
            for (double& number : scaled) {
              number = dtype == DType::float64 ? number * how.prescale
                                               : static_cast<float>(number) * static_cast<float>(how.prescale);
            }
            DeviceTensor wide(dtype, elements, stream, size_of(dtype) * static_cast<std::size_t>(rank() % 3));
            const DType held = size() == 1 ? dtype : narrow;
            DeviceTensor small(held, elements, stream);
            wide.write(input);
            small.write(rounded(held, scaled));
            AllreduceOptions sent = how;
            sent.send_as = narrow;
            AllreduceOptions plain = how;
            plain.prescale = 1.0;
            Handle first = allreduce_async("wide", wide.view(), sent);
            Handle second = allreduce_async("small", small.view(), plain);
            follow(first, stream);
            follow(second, stream);
            const std::string what = std::to_string(elements) + " " + std::string(to_string(dtype)) + " as " +
                                     std::string(to_string(narrow)) + ", " + std::string(to_string(how.op)) +
                                     ", prescale " + std::to_string(how.prescale) + ", postscale " +
                                     std::to_string(how.postscale) + ", rank " + std::to_string(rank());
            const Bytes result = wide.read();
            EXPECT_TRUE(result == rounded(dtype, numbers_in(held, small.read()))) << what;
            if (is_staged()) {
              Bytes host = input;
              allreduce("host", TensorView(host.data(), dtype, Shape{elements}), sent);
              EXPECT_TRUE(result == host) << what << ": against the CPU";
            }
            first.wait();
            second.wait();
          }
        }
      }
    }
  });
}

/// Averages of what 16 bits hold, though they do not hold the sums: NCCL's are divided before they are rounded.
TEST_P(Arithmetic, AveragesThatAreSentAs16BitsDoNotOverflow) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    const auto how = AllreduceOptions{}.with_op(ReduceOp::average).with_send_as(DType::float16);
    for (const DType dtype : {DType::float32, DType::float64}) {
      const Bytes all = rounded(dtype, std::vector<double>(5000, 61440.0));
      DeviceTensor x(dtype, 5000, stream);
      x.write(all);
      EXPECT_TRUE(result_of(allreduce_async("x", x.view(), how), x) == all) << to_string(dtype);
    }
  });
}

/// What is sent as another type is copied, wherever it lies: so it may lie in an arena on one rank alone.
TEST_P(Arithmetic, SentAs16BitsFromAnArenaOfOneRank) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    GradientArena arena(1 << 20, own_device());
    const TensorView inside = arena.allocate(DType::float32, Shape{1000}, Stream{stream});
    const TensorView half = arena.allocate(DType::float16, Shape{50}, Stream{stream});
    DeviceTensor outside(DType::float32, 1000, stream);
    const std::vector<double> ones(1000, 1.0 + 0x1p-20);  // 1 in 16 bits
    const Bytes input = rounded(DType::float32, ones);
    const Bytes halves = rounded(DType::float16, std::vector<double>(50, 2.0));
    const TensorView mine = rank() == 0 ? inside : outside.view();
    write(mine, input);
    write(half, halves);
    const NamedView members[] = {{"mine", mine}, {"half", half}};
    Handle handle = grouped_allreduce_async("both", members, AllreduceOptions{}.with_send_as(DType::bfloat16));
    follow(handle, stream);
    Bytes result(input.size());
    Bytes half_result(halves.size());
    ok(cudaMemcpyAsync(result.data(), mine.data(), result.size(), cudaMemcpyDeviceToHost, stream));
    ok(cudaMemcpyAsync(half_result.data(), half.data(), halves.size(), cudaMemcpyDeviceToHost, stream));
    stream.synchronize();
    handle.wait();
    emulated::acquire_all();
    const double sum = size() == 1 ? ones[0] : size();
    EXPECT_TRUE(result == rounded(DType::float32, std::vector<double>(1000, sum)));
    EXPECT_TRUE(half_result == rounded(DType::float16, std::vector<double>(50, 2.0 * size())));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Arithmetic, ::testing::ValuesIn(worlds_of({3, 8})), name_of_world);

}  // namespace
}  // namespace kolo::cuda::test
