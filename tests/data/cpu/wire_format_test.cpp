// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/wire_format.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace kolo::data::cpu {
namespace {

TEST(WireFormat, EveryFormatHoldsWholeLinesInAGranule) {
  for_each_wire_format([](const WireFormat& format) {
    EXPECT_EQ(format.bytes(format.granule()) % 64, 0U);
    EXPECT_EQ(format.bytes(0), 0U);
    for (const std::size_t bytes : {64, 4096, 100000}) {
      EXPECT_LE(format.bytes(format.elements_in(bytes)), bytes);
      EXPECT_GT(format.bytes(format.elements_in(bytes) + format.granule()), bytes);
    }
  });
}

TEST(WireFormat, OnlyWiderFloatsTravelAsOthers) {
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    const WireFormat format(dtype, core::wire_of(dtype, core::Wire::bfloat16));
    const bool wider = dtype == DType::float32 || dtype == DType::float64;
    EXPECT_EQ(format.is_plain(), !wider) << to_string(dtype);
    EXPECT_EQ(format.memory(), dtype);
    EXPECT_EQ(format.bytes(8), wider ? 16 : 8 * size_of(dtype));
  }
}

TEST(WireFormat, EncodesScaledReducesAndDecodes) {
  const std::vector<float> mine{1, 2, 3}, theirs{10, 20, 30};
  for (const core::Wire wire : {core::Wire::own, core::Wire::float16, core::Wire::bfloat16}) {
    const WireFormat format(DType::float32, wire);
    const kernels::Reduction reduction{DType::float32, ReduceOp::sum, {0.5, 4, 1}};
    kernels::PeerCopy copy;
    std::vector<std::byte> a(format.bytes(3)), b(a), sum(a);
    format.encode(reinterpret_cast<const std::byte*>(mine.data()), 3, reduction.scaling.prescale, a.data(), copy);
    format.encode(reinterpret_cast<const std::byte*>(theirs.data()), 3, reduction.scaling.prescale, b.data(), copy);
    const void* inputs[] = {a.data(), b.data()};
    void* output = sum.data();
    format.reduce(reduction, inputs, 2, &output, 1, 3);
    std::vector<float> result(3), partial(3);
    format.decode(sum.data(), 3, reinterpret_cast<std::byte*>(result.data()), false);
    EXPECT_EQ(result, (std::vector<float>{22, 44, 66})) << core::to_string(wire);
    ASSERT_EQ(format.sums(), DType::float32);
    format.reduce_partial(reduction, inputs, 2, partial.data(), 3);
    EXPECT_EQ(partial, (std::vector<float>{5.5, 11, 16.5}));
    format.finish(reduction, partial.data(), sum.data(), 3);
    format.decode(sum.data(), 3, reinterpret_cast<std::byte*>(result.data()), true);
    EXPECT_EQ(result, (std::vector<float>{22, 44, 66}));
  }
}

}  // namespace
}  // namespace kolo::data::cpu
