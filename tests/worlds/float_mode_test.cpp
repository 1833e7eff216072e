// SPDX-License-Identifier: Apache-2.0
//
// Ranks whose threads round in different ways get the same sums, and keep their control registers.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <kolo/collectives.hpp>

#include "tests/support/sanitized.hpp"
#include "world.hpp"

namespace {

using kolo::DType;
using kolo::testing::run_in;

/// A thread that rounds toward zero and knows no subnormal numbers.
class RoughArithmetic {
 public:
  explicit RoughArithmetic(bool wanted) : wanted_(wanted) {
    if (!wanted) return;
    std::fesetround(FE_TOWARDZERO);
#if defined(__x86_64__)
    constexpr unsigned kFlushToZero = 0x8000;
    constexpr unsigned kInputsAreZeros = 0x0040;
    _mm_setcsr(_mm_getcsr() | kFlushToZero | kInputsAreZeros);
#endif
    before_ = state();
  }
  ~RoughArithmetic() {
    if (!wanted_) return;
    EXPECT_EQ(state(), before_);
#if defined(__x86_64__)
    _mm_setcsr(0x1f80);
#endif
    std::fesetround(FE_TONEAREST);
  }

 private:
  static unsigned state() {
#if defined(__x86_64__)
    return _mm_getcsr() & ~0x3fU;  // without the notes of what has happened: any arithmetic leaves them
#else
    return static_cast<unsigned>(std::fegetround());
#endif
  }
  const bool wanted_;
  unsigned before_ = 0;
};

template <class Bits, class Value>
Bits bits_of(Value value) {
  Bits bits = 0;
  static_assert(sizeof bits == sizeof value);
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// What rank 0 gives, what the others give, and the one right sum of both, as bits: subnormal inputs, a subnormal
/// result, one that rounds up, one that rounds to even.
template <class Bits>
struct Cases {
  DType dtype;
  std::vector<Bits> first, second, sum;
};

const Cases<std::uint32_t> kSingles{
    DType::float32,
    {0x00000001, 0x00800000, 0x3f800000, 0x3f800001},
    {0x00000001, 0x80000001, 0x33c00000, 0x33800000},
    {0x00000002, 0x007fffff, 0x3f800001, 0x3f800002},
};
const Cases<std::uint64_t> kDoubles{
    DType::float64,
    {1, 0x0010000000000000, bits_of<std::uint64_t>(1.0), 0x3ff0000000000001},
    {1, 0x8000000000000001, 0x3ca8000000000000, 0x3ca0000000000000},
    {2, 0x000fffffffffffff, 0x3ff0000000000001, 0x3ff0000000000002},
};
const Cases<std::uint16_t> kHalves{
    DType::float16,
    {0x0001, 0x0400, 0x3c00, 0x3c01},
    {0x0001, 0x8001, 0x1200, 0x1000},
    {0x0002, 0x03ff, 0x3c01, 0x3c02},
};
const Cases<std::uint16_t> kBrains{
    DType::bfloat16,
    {0x0001, 0x0080, 0x3f80, 0x3f81},
    {0x0001, 0x8001, 0x3bc0, 0x3b80},
    {0x0002, 0x007f, 0x3f81, 0x3f82},
};

/// `count` elements: the cases again and again.
template <class Bits>
void check(const Cases<Bits>& cases, std::size_t count, const std::string& name) {
  std::vector<Bits> x(count);
  const std::vector<Bits>& given = kolo::rank() == 0 ? cases.first : cases.second;
  for (std::size_t i = 0; i < count; ++i) x[i] = given[i % 4];
  const kolo::TensorView tensor(x.data(), cases.dtype, kolo::Shape{static_cast<std::int64_t>(count)});
  if (name.empty()) {
    kolo::allreduce(tensor);
  } else {
    kolo::allreduce(name, tensor);
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (x[i] != cases.sum[i % 4] && wrong++ == 0) {
      ADD_FAILURE() << to_string(cases.dtype) << " case " << i % 4 << (name.empty() ? ", unnamed" : ", by name")
                    << ", rank " << kolo::rank() << ": " << std::hex << x[i] << ", not " << cases.sum[i % 4];
    }
  }
}

void check_all(std::size_t count) {
  for (const std::string name : {"", "x"}) {
    check(kSingles, count, name);
    check(kDoubles, count, name);
    check(kHalves, count, name);
    check(kBrains, count, name);
  }
}

/// Elements of several chunks.
constexpr std::size_t kMany = kolo::testing::unless_sanitized(100000, 20000);

class FloatModes : public testing::TestWithParam<int> {};

TEST_P(FloatModes, SumsDoNotDependOnTheThreadsThatAdd) {
  for (const int rough : {0, 1}) {
    run_in({2, GetParam()}, [&] {
      const RoughArithmetic arithmetic(kolo::rank() == rough);
      for (const std::size_t count : {std::size_t{4}, std::size_t{1000}, kMany}) check_all(count);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, FloatModes, testing::Values(0, 1));

}  // namespace
