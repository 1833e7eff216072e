// SPDX-License-Identifier: Apache-2.0
#include "data/kernels/reduction.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "data/kernels/copy.hpp"
#include "support.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::kernels {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product};
constexpr ReduceOp kBitwise[] = {ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor};
constexpr DType kFloats[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};
constexpr std::int64_t kCounts[] = {0, 1, 7, 31, 64, 1000, 4097};
constexpr std::int64_t kMost = 4097;

/// An average of integers is their sum: who divides refuses it.
std::vector<ReduceOp> ops_of(DType dtype) {
  std::vector<ReduceOp> ops(std::begin(kOps), std::end(kOps));
  if (!is_floating_point(dtype)) ops.insert(ops.end(), std::begin(kBitwise), std::end(kBitwise));
  return ops;
}

std::vector<DType> all_dtypes() {
  std::vector<DType> dtypes;
  for (int i = 0; i < kDTypeCount; ++i) dtypes.push_back(static_cast<DType>(i));
  return dtypes;
}

/// n arrays of random elements, the r-th beginning at an address of its own crookedness.
class Inputs {
 public:
  Inputs(DType dtype, int n, bool aligned, unsigned seed = 1) {
    std::mt19937_64 random(seed);
    for (int r = 0; r < n; ++r) {
      arrays_.emplace_back(kMost * reference::bytes_of(dtype), aligned ? 0 : 3 * r + 1);
      fill(dtype, arrays_.back().data(), kMost, random);
    }
    for (Memory& array : arrays_) pointers_.push_back(array.data());
  }

  [[nodiscard]] const void* const* pointers() const { return pointers_.data(); }
  [[nodiscard]] Memory& operator[](std::size_t r) { return arrays_[r]; }

 private:
  std::vector<Memory> arrays_;
  std::vector<const void*> pointers_;
};

std::vector<unsigned char> expected_of(const Reduction& reduction, const void* const* inputs, int n) {
  std::vector<unsigned char> expected(static_cast<std::size_t>(kMost * reference::bytes_of(reduction.dtype)));
  reference::reduce(reduction, inputs, n, expected.data(), kMost);
  return expected;
}

class Reduce : public OnEveryTarget {
 protected:
  static void expect_same_for_all_counts(const Reduction& reduction, int n, bool aligned, int own = kNoneIsOwn) {
    Inputs inputs(reduction.dtype, n, aligned);
    const auto expected = expected_of(reduction, inputs.pointers(), n);
    const std::int64_t size = reference::bytes_of(reduction.dtype);
    for (const std::int64_t count : kCounts) {
      Memory output(count * size, aligned ? 0 : 5);
      reduce(reduction, inputs.pointers(), n, output.data(), count, own);
      ASSERT_TRUE(same(reduction.dtype, expected.data(), output.data(), count)) << "count " << count;
      ASSERT_TRUE(output.surroundings_untouched()) << "count " << count;
      // An address within a vector, at a multiple of the element's size or not.
      Memory past(count * size, aligned ? static_cast<std::int64_t>(2 * size) : 5);
      reduce_past_cache(reduction, inputs.pointers(), n, past.data(), count, own);
      ASSERT_TRUE(same(reduction.dtype, expected.data(), past.data(), count)) << "past the cache, count " << count;
      ASSERT_TRUE(past.surroundings_untouched()) << "past the cache, count " << count;
    }
  }

  static void expect_same_in_place(const Reduction& reduction, int n, int r) {
    Inputs inputs(reduction.dtype, n, false);
    const auto expected = expected_of(reduction, inputs.pointers(), n);
    Memory& output = inputs[static_cast<std::size_t>(r)];
    reduce(reduction, inputs.pointers(), n, output.data(), kMost, r);
    ASSERT_TRUE(same(reduction.dtype, expected.data(), output.data(), kMost)) << "in place of input " << r;
    ASSERT_TRUE(output.surroundings_untouched());
  }

  /// All inputs become the result, as when a rank writes a sum back to all.
  static void expect_same_to_all(const Reduction& reduction, int n) {
    Inputs inputs(reduction.dtype, n, false);
    const auto expected = expected_of(reduction, inputs.pointers(), n);
    std::vector<void*> outputs;
    for (int r = 0; r < n; ++r) outputs.push_back(inputs[static_cast<std::size_t>(r)].data());
    reduce_to_all(reduction, inputs.pointers(), n, outputs.data(), n, kMost);
    for (int r = 0; r < n; ++r) {
      Memory& output = inputs[static_cast<std::size_t>(r)];
      ASSERT_TRUE(same(reduction.dtype, expected.data(), output.data(), kMost)) << "output " << r;
      ASSERT_TRUE(output.surroundings_untouched());
    }
  }
};
KOLO_ON_EVERY_TARGET(Reduce);

TEST_P(Reduce, EqualsTheReferenceForEveryTypeAndOp) {
  std::size_t cell = 0;
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : ops_of(dtype)) {
      for (const int n : {1, 2, 3, 4, 8, 9}) {
        if (!kolo::testing::is_taken(cell++)) continue;
        SCOPED_TRACE(::testing::Message() << "dtype " << int(dtype) << " op " << int(op) << " n " << n);
        const Reduction reduction{dtype, op, {}};
        ASSERT_NO_FATAL_FAILURE(expect_same_for_all_counts(reduction, n, true));
        ASSERT_NO_FATAL_FAILURE(expect_same_for_all_counts(reduction, n, false));
        for (const int r : {0, n / 2, n - 1}) ASSERT_NO_FATAL_FAILURE(expect_same_in_place(reduction, n, r));
        ASSERT_NO_FATAL_FAILURE(expect_same_to_all(reduction, n));
        if (n != 2) continue;
        for (const int own : {0, 1}) ASSERT_NO_FATAL_FAILURE(expect_same_for_all_counts(reduction, n, own == 0, own));
      }
    }
  }
}

TEST_P(Reduce, ScalesLikeTheReference) {
  const Scaling scalings[] = {
      {0.1, 1, 1}, {1, 0.3, 1}, {1, 1, 3}, {1, 1, 4}, {0.7, 1.9, 7}, {1.3, 1e-3, 1024}, {1, 1, std::int64_t{1} << 62}};
  std::size_t cell = 0;
  for (const DType dtype : kFloats) {
    for (const ReduceOp op : kOps) {
      for (const Scaling& scaling : scalings) {
        if (!kolo::testing::is_taken(cell++)) continue;
        SCOPED_TRACE(::testing::Message()
                     << "dtype " << int(dtype) << " op " << int(op) << " divisor " << scaling.divisor);
        for (const int n : {1, 2, 5}) {
          ASSERT_NO_FATAL_FAILURE(expect_same_for_all_counts({dtype, op, scaling}, n, false));
          ASSERT_NO_FATAL_FAILURE(expect_same_in_place({dtype, op, scaling}, n, n - 1));
        }
      }
    }
  }
}

using Bytes = std::vector<unsigned char>;

/// The inputs as arrays of the accumulator type; exact.
std::vector<Bytes> widened(DType dtype, Inputs& inputs, int n) {
  const DType wide = accumulator_of(dtype);
  const std::int64_t bytes = kMost * reference::bytes_of(wide);
  std::vector<Bytes> arrays;
  for (std::size_t r = 0; r < static_cast<std::size_t>(n); ++r) {
    const unsigned char* input = inputs[r].data();
    if (wide == dtype) {
      arrays.emplace_back(input, input + bytes);
      continue;
    }
    arrays.emplace_back(static_cast<std::size_t>(bytes));
    for (std::int64_t i = 0; i < kMost; ++i) {
      reference::write(arrays.back().data(), i, static_cast<float>(reference::value_of(dtype, input, i)));
    }
  }
  return arrays;
}

Bytes expected_of(const Reduction& reduction, const std::vector<Bytes>& arrays) {
  std::vector<const void*> pointers;
  for (const Bytes& array : arrays) pointers.push_back(array.data());
  return expected_of(reduction, pointers.data(), static_cast<int>(pointers.size()));
}

Bytes expected_finish(const Reduction& reduction, const Bytes& accumulator) {
  const DType wide = accumulator_of(reduction.dtype);
  const Scaling last{1, reduction.scaling.postscale, reduction.scaling.divisor};
  Bytes result = expected_of({wide, reduction.op, last}, {accumulator});
  if (wide == reduction.dtype) return result;
  Bytes narrow(static_cast<std::size_t>(kMost) * 2);
  const auto format = reduction.dtype == DType::float16 ? reference::kFloat16 : reference::kBFloat16;
  for (std::int64_t i = 0; i < kMost; ++i) {
    reference::write(narrow.data(), i, reference::encode(format, reference::value_of(wide, result.data(), i)));
  }
  return narrow;
}

/// Two nodes of two and three ranks.
void expect_parts_to_combine_and_finish(const Reduction& reduction) {
  const DType dtype = reduction.dtype;
  const DType wide = accumulator_of(dtype);
  Inputs first(dtype, 2, false, 7);
  Inputs second(dtype, 3, false, 8);
  Memory mine(kMost * reference::bytes_of(wide), 3);
  Memory other(kMost * reference::bytes_of(wide), 1);
  reduce_partial(reduction, first.pointers(), 2, mine.data(), kMost);
  reduce_partial(reduction, second.pointers(), 3, other.data(), kMost);
  const Reduction partial{wide, reduction.op, {reduction.scaling.prescale, 1, 1}};
  const Bytes expected_mine = expected_of(partial, widened(dtype, first, 2));
  const Bytes expected_other = expected_of(partial, widened(dtype, second, 3));
  ASSERT_TRUE(same(wide, expected_mine.data(), mine.data(), kMost));
  ASSERT_TRUE(same(wide, expected_other.data(), other.data(), kMost));
  ASSERT_TRUE(other.surroundings_untouched());

  const void* parts[] = {mine.data(), other.data()};
  reduce({wide, reduction.op, {}}, parts, 2, mine.data(), kMost);
  const Bytes combined = expected_of({wide, reduction.op, {}}, {expected_mine, expected_other});
  ASSERT_TRUE(same(wide, combined.data(), mine.data(), kMost));
  ASSERT_TRUE(mine.surroundings_untouched());

  Memory output(kMost * reference::bytes_of(dtype), 1);
  finish(reduction, mine.data(), output.data(), kMost);
  const Bytes finished = expected_finish(reduction, combined);
  ASSERT_TRUE(same(dtype, finished.data(), output.data(), kMost));
  ASSERT_TRUE(output.surroundings_untouched());
}

TEST_P(Reduce, PartsOfTwoNodesCombineAndFinish) {
  for (const DType dtype : all_dtypes()) {
    const Scaling scaling = is_floating_point(dtype) ? Scaling{0.7, 1.9, 5} : Scaling{};
    for (const ReduceOp op : ops_of(dtype)) {
      SCOPED_TRACE(::testing::Message() << "dtype " << int(dtype) << " op " << int(op));
      ASSERT_NO_FATAL_FAILURE(expect_parts_to_combine_and_finish({dtype, op, scaling}));
    }
  }
}

// Streaming cuts tensors into chunks; where the cuts fall must not show.
TEST_P(Reduce, ResultsDoNotDependOnThePlaceInTheChunk) {
  constexpr std::int64_t kCount = 300;
  for (const DType dtype : kFloats) {
    const Reduction reduction{dtype, ReduceOp::sum, {0.3, 1.7, 3}};
    const std::int64_t size = reference::bytes_of(dtype);
    Inputs inputs(dtype, 3, false);
    Memory whole(kCount * size, 0);
    reduce(reduction, inputs.pointers(), 3, whole.data(), kCount);
    for (std::int64_t begin = 0; begin < kCount; ++begin) {
      const void* shifted[3];
      for (std::size_t r = 0; r < 3; ++r) shifted[r] = inputs[r].data() + begin * size;
      Memory part((kCount - begin) * size, begin % 64);
      reduce(reduction, shifted, 3, part.data(), kCount - begin);
      ASSERT_TRUE(same(dtype, whole.data() + begin * size, part.data(), kCount - begin)) << "from " << begin;
    }
  }
}

template <class T>
T reduce_values(const Reduction& reduction, const std::vector<T>& values) {
  std::vector<const void*> inputs;
  for (const T& value : values) inputs.push_back(&value);
  T result{};
  std::memset(&result, kPoison, sizeof result);
  reduce(reduction, inputs.data(), static_cast<int>(values.size()), &result, 1);
  return result;
}

TEST_P(Reduce, AddsInTheOrderOfItsInputs) {
  const Reduction sum{DType::float32, ReduceOp::sum, {}};
  EXPECT_EQ(reduce_values<float>(sum, {1e30F, 1, -1e30F}), 0.0F);
  EXPECT_EQ(reduce_values<float>(sum, {1e30F, -1e30F, 1}), 1.0F);
}

TEST_P(Reduce, Accumulates16BitsInFloat32) {
  // 2048 + 1 is 2048 in float16, 256 + 1 is 256 in bfloat16.
  const std::uint16_t half = 0x3C00, half2048 = 0x6800, half2050 = 0x6801;
  EXPECT_EQ(reduce_values<std::uint16_t>({DType::float16, ReduceOp::sum, {}}, {half2048, half, half}), half2050);
  const std::uint16_t brain = 0x3F80, brain256 = 0x4380, brain258 = 0x4381;
  EXPECT_EQ(reduce_values<std::uint16_t>({DType::bfloat16, ReduceOp::sum, {}}, {brain256, brain, brain}), brain258);
}

TEST_P(Reduce, RoundsTo16BitsToNearestEven) {
  const Reduction sum{DType::bfloat16, ReduceOp::sum, {}};
  EXPECT_EQ(reduce_values<std::uint16_t>(sum, {0x4380, 0x3F80}), 0x4380);  // 256 + 1: a tie, down to 256
  EXPECT_EQ(reduce_values<std::uint16_t>(sum, {0x4381, 0x3F80}), 0x4382);  // 258 + 1: a tie, up to 260
  EXPECT_EQ(reduce_values<std::uint16_t>(sum, {0x7F7F, 0x7F7F}), 0x7F80);  // too large: infinity
  const Reduction half{DType::float16, ReduceOp::sum, {}};
  EXPECT_EQ(reduce_values<std::uint16_t>(half, {0x6800, 0x3C00}), 0x6800);  // 2048 + 1
  EXPECT_EQ(reduce_values<std::uint16_t>(half, {0x6801, 0x3C00}), 0x6802);  // 2050 + 1
  EXPECT_EQ(reduce_values<std::uint16_t>(half, {0x7BFF, 0x7BFF}), 0x7C00);
  EXPECT_EQ(reduce_values<std::uint16_t>(half, {0x0001, 0x0001}), 0x0002);  // subnormal
}

TEST_P(Reduce, AverageOfEqualNumbersIsThatNumber) {
  for (const int n : {2, 3, 5, 6, 7, 8}) {
    const Reduction average{DType::float32, ReduceOp::average, {1, 1, n}};
    for (const float x : {1.0F, 3.0F, 0.625F, -1234.5F, 1e-40F}) {
      EXPECT_EQ(reduce_values<float>(average, std::vector<float>(static_cast<std::size_t>(n), x)), x) << n;
    }
  }
}

TEST_P(Reduce, MinAndMaxKnowNaNAndSignedZero) {
  const Reduction min{DType::float32, ReduceOp::min, {}};
  const Reduction max{DType::float32, ReduceOp::max, {}};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduction& op : {min, max}) {
    EXPECT_TRUE(std::isnan(reduce_values<float>(op, {nan, 1})));
    EXPECT_TRUE(std::isnan(reduce_values<float>(op, {1, nan})));
    EXPECT_TRUE(std::isnan(reduce_values<float>(op, {1, nan, -INFINITY, INFINITY})));
  }
  EXPECT_TRUE(std::signbit(reduce_values<float>(min, {-0.0F, 0.0F})));
  EXPECT_TRUE(std::signbit(reduce_values<float>(min, {0.0F, -0.0F})));
  EXPECT_FALSE(std::signbit(reduce_values<float>(max, {-0.0F, 0.0F})));
  EXPECT_FALSE(std::signbit(reduce_values<float>(max, {0.0F, -0.0F})));
}

TEST_P(Reduce, IntegersWrapAround) {
  EXPECT_EQ(reduce_values<std::int8_t>({DType::int8, ReduceOp::sum, {}}, {127, 1}), -128);
  EXPECT_EQ(reduce_values<std::int32_t>({DType::int32, ReduceOp::sum, {}}, {INT32_MAX, 1}), INT32_MIN);
  EXPECT_EQ(reduce_values<std::int64_t>({DType::int64, ReduceOp::product, {}}, {INT64_MIN, -1}), INT64_MIN);
  EXPECT_EQ(reduce_values<std::uint16_t>({DType::uint16, ReduceOp::product, {}}, {0xFFFF, 0xFFFF}), 1);
}

TEST_P(Reduce, BitsByThemselves) {
  EXPECT_EQ(reduce_values<std::int8_t>({DType::int8, ReduceOp::bit_and, {}}, {-1, 0x5A}), 0x5A);
  EXPECT_EQ(reduce_values<std::uint16_t>({DType::uint16, ReduceOp::bit_or, {}}, {0xF000, 0x000F, 0x0100}), 0xF10F);
  EXPECT_EQ(reduce_values<std::int32_t>({DType::int32, ReduceOp::bit_xor, {}}, {INT32_MIN, -1}), INT32_MAX);
  EXPECT_EQ(reduce_values<std::uint64_t>({DType::uint64, ReduceOp::bit_xor, {}}, {UINT64_MAX, 1, 2}), UINT64_MAX - 3);
}

TEST_P(Reduce, AnyNonzeroByteIsTrue) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::bit_or}) {
    const Reduction any{DType::boolean, op, {}};
    EXPECT_EQ(reduce_values(any, Bytes{0, 0}), 0);
    EXPECT_EQ(reduce_values(any, Bytes{0, 255}), 1);
    EXPECT_EQ(reduce_values(any, Bytes{128, 128}), 1);
  }
  for (const ReduceOp op : {ReduceOp::product, ReduceOp::min, ReduceOp::bit_and}) {
    const Reduction every{DType::boolean, op, {}};
    EXPECT_EQ(reduce_values(every, Bytes{1, 2}), 1);
    EXPECT_EQ(reduce_values(every, Bytes{16, 16}), 1);
    EXPECT_EQ(reduce_values(every, Bytes{255, 0}), 0);
  }
  const Reduction odd{DType::boolean, ReduceOp::bit_xor, {}};
  EXPECT_EQ(reduce_values(odd, Bytes{1, 2}), 0);
  EXPECT_EQ(reduce_values(odd, Bytes{0, 128}), 1);
  EXPECT_EQ(reduce_values(odd, Bytes{3, 5, 255}), 1);
  EXPECT_EQ(reduce_values(odd, Bytes{0, 0}), 0);
  EXPECT_EQ(reduce_values({DType::boolean, ReduceOp::sum, {}}, Bytes{7}), 1);
  EXPECT_EQ(reduce_values(odd, Bytes{7}), 1);
}

// Every 16-bit number plus each of a choice of partners.
TEST_P(Reduce, SumsOfAll16BitNumbers) {
  constexpr std::int64_t kAll = 65536;
  std::vector<std::uint16_t> all(kAll);
  for (std::int64_t i = 0; i < kAll; ++i) all[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(i);
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    for (const int partner : {0x0000, 0x8000, 0x0001, 0x8001, 0x0080, 0x0400, 0x3C00, 0x3F81, 0xBF80, 0x7BFF, 0x7C00,
                              0xFC00, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F}) {
      const std::vector<std::uint16_t> other(kAll, static_cast<std::uint16_t>(partner));
      const void* inputs[] = {all.data(), other.data()};
      const Reduction sum{dtype, ReduceOp::sum, {}};
      std::vector<std::uint16_t> expected(kAll), actual(kAll, 0xA5A5);
      reference::reduce(sum, inputs, 2, expected.data(), kAll);
      reduce(sum, inputs, 2, actual.data(), kAll);
      ASSERT_TRUE(same(dtype, expected.data(), actual.data(), kAll)) << "dtype " << int(dtype) << " + " << partner;
    }
  }
}

TEST(ReduceContract, AccumulatorsAreWideFor16BitsOnly) {
  for (const DType dtype : all_dtypes()) {
    const bool narrow = dtype == DType::float16 || dtype == DType::bfloat16;
    EXPECT_EQ(accumulator_of(dtype), narrow ? DType::float32 : dtype);
  }
}

TEST(ReduceContract, NothingIsReadWhereNothingIsCounted) {
  const void* inputs[] = {nullptr, nullptr};
  for (const DType dtype : all_dtypes()) reduce({dtype, ReduceOp::sum, {}}, inputs, 2, nullptr, 0);
  copy(nullptr, nullptr, 0);
}

TEST(ReduceContractDeathTest, MisuseAborts) {
  float x = 1;
  const void* inputs[] = {&x};
  EXPECT_DEATH(reduce({DType::int32, ReduceOp::sum, {1, 1, 2}}, inputs, 1, &x, 1), "scaling");
  EXPECT_DEATH(reduce({DType::float32, ReduceOp::sum, {1, 1, 0}}, inputs, 1, &x, 1), "divisor");
  EXPECT_DEATH(reduce({DType::float32, ReduceOp::sum, {}}, inputs, 0, &x, 1), "n >= 1");
}

}  // namespace
}  // namespace kolo::kernels
