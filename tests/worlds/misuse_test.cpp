// SPDX-License-Identifier: Apache-2.0
//
// What would silently do the wrong thing does not compile, or is refused with a sentence; and what is easily taken for
// wrong works.
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "tests/support/sanitized.hpp"

namespace {

using kolo::ErrorCode;
using kolo::Span;
using kolo::testing::sentence_of;

// ---------------------------------------------------------------- objects are values, not addresses

template <class T>
constexpr bool travels = kolo::detail::is_object<T>;

struct Plain {
  int number;
  double other;
};
static_assert(travels<int> && travels<bool> && travels<Plain> && travels<std::string> && travels<ErrorCode>);
static_assert(travels<std::vector<std::byte>> && travels<std::array<float, 3>> && travels<std::optional<int>>);
static_assert(travels<std::chrono::seconds> && travels<kolo::Shape>);
static_assert(!travels<std::string_view> && !travels<const char*> && !travels<char[6]> && !travels<std::nullptr_t>);
static_assert(!travels<kolo::TensorView> && !travels<kolo::ConstTensorView> && !travels<Span<const float>>);
static_assert(!travels<float*> && !travels<std::array<float*, 2>> && !travels<std::optional<int*>>);
static_assert(!travels<std::reference_wrapper<int>> && !travels<std::initializer_list<int>>);
static_assert(!travels<std::vector<int>::iterator> && !travels<std::vector<int>> && !travels<int Plain::*>);
static_assert(!travels<std::unique_ptr<int>> && !travels<int (*)()>);

// ---------------------------------------------------------------- options

using kolo::AllreduceOptions;
using kolo::ReduceOp;

TEST(Misuse, AChainOfOptionsCanBeKept) {
  const auto& kept = AllreduceOptions{}.with_op(ReduceOp::max).with_timeout(std::chrono::seconds(3));
  static_assert(std::is_same_v<decltype(AllreduceOptions{}.with_op(ReduceOp::max)), AllreduceOptions>);
  static_assert(std::is_same_v<decltype(kolo::Options{}.with_setting("", "")), kolo::Options>);
  static_assert(std::is_same_v<decltype(kolo::SgdOptions{}.with_momentum(0)), kolo::SgdOptions>);
  EXPECT_EQ(kept.op, ReduceOp::max);
  EXPECT_EQ(kept.timeout, std::chrono::seconds(3));
  AllreduceOptions options;
  AllreduceOptions& same = options.with_prescale(2).with_op(ReduceOp::min);
  EXPECT_EQ(&same, &options);
  EXPECT_EQ(options.op, ReduceOp::min);
}

#if defined(KOLO_SETTER) || defined(KOLO_SETTER_TIMEOUT)
#error "a macro of Kolo's own is left to the program"
#endif
static_assert(!std::is_convertible_v<kolo::BroadcastOptions, kolo::BarrierOptions>);
static_assert(!std::is_convertible_v<AllreduceOptions, kolo::ReduceScatterOptions>);

TEST(Misuse, AnOperationIsAnOption) {
  kolo::run_local(2, [] {
    std::vector<float> x{1.0F + static_cast<float>(kolo::rank())};
    kolo::allreduce(kolo::view(x), ReduceOp::average);
    EXPECT_EQ(x[0], 1.5F);
    kolo::allreduce("x", kolo::view(x), ReduceOp::max);
    const kolo::Tensor half = kolo::reduce_scatter(kolo::view(x), ReduceOp::sum);
    EXPECT_EQ(half.elements(), kolo::rank() == 0 ? 1 : 0);
  });
}

// ---------------------------------------------------------------- results

TEST(Misuse, FuturesAreWaitedForTogether) {
  kolo::run_local(2, [] {
    const std::array<int, 2> mine{kolo::rank(), 7};
    std::vector<kolo::Future<kolo::Tensor>> gathered;
    gathered.push_back(kolo::allgather_async("a", kolo::const_view(mine)));
    gathered.push_back(kolo::allgather_async("b", kolo::const_view(mine)));
    kolo::wait_all(gathered);
    for (auto& one : gathered) {
      EXPECT_TRUE(one.done());
      EXPECT_EQ(one.get().as<int>()[2], 1);
    }
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument,
                          [] { kolo::wait_all(std::vector<kolo::Future<kolo::AlltoallResult>>(1)); }),
              "this handle is empty: it was moved from, or never started");
  });
}

TEST(Misuse, AConstantTensorIsAnInput) {
  kolo::run_local(2, [] {
    const kolo::Tensor once = kolo::allgather(kolo::const_view(std::array<int, 1>{kolo::rank()}.data(), 1));
    const kolo::Tensor twice = kolo::allgather(once.view());
    EXPECT_EQ(twice.elements(), 4);
    static_assert(std::is_same_v<decltype(once.view()), kolo::ConstTensorView>);
  });
}

// ---------------------------------------------------------------- training

// What an arena rewrites, or a step writes to, is not a list that goes at the end of the line.
static_assert(!std::is_constructible_v<kolo::GradientArena, std::vector<kolo::Parameter>>);
static_assert(!std::is_constructible_v<kolo::GradientArena, kolo::Context&, std::vector<kolo::Parameter>>);
static_assert(std::is_constructible_v<kolo::GradientArena, std::vector<kolo::Parameter>&>);
static_assert(std::is_constructible_v<kolo::GradientArena, kolo::Context&, std::vector<kolo::Parameter>&>);

TEST(Misuse, AnOptimizerOfTheOldListIsRefused) {
  kolo::Context context;
  std::vector<float> value(4), gradient(4);
  std::vector<kolo::Parameter> parameters{{"w", kolo::view(value), kolo::view(gradient)}};
  kolo::Sgd before(parameters, {0.1});
  const std::vector<kolo::Parameter> old = parameters;
  const kolo::GradientArena arena(context, parameters);
  kolo::AdamW of_copy(old);
  const std::string wanted =
      "DistributedOptimizer: the optimizer steps \"w\" with other memory than the list of parameters has; make the "
      "optimizer from that list (and a GradientArena before both)";
  const auto wrap = [&](auto& optimizer) {
    return sentence_of(ErrorCode::invalid_argument,
                       [&] { kolo::DistributedOptimizer wrapped(context, optimizer, parameters); });
  };
  EXPECT_EQ(wrap(before), wanted);
  EXPECT_EQ(wrap(of_copy), wanted);
  kolo::Sgd after(parameters, {0.1});
  EXPECT_EQ(wrap(after), "(nothing was thrown)");
}

// ---------------------------------------------------------------- errors

TEST(Misuse, FatalErrorsAreTold) {
  for (int code = 0; code < kolo::kErrorCodeCount; ++code) {
    const auto name = kolo::to_string(static_cast<ErrorCode>(code));
    const bool fatal = name == "timeout" || name == "rank_lost" || name == "transport" || name == "user_exception";
    EXPECT_EQ(kolo::is_fatal(static_cast<ErrorCode>(code)), fatal) << name;
  }
}

TEST(Misuse, AResultThatNoMemoryHoldsIsOutOfMemory) {
  if (kolo::testing::kSanitized) return;  // where asking for so much ends the process
  kolo::Context context;
  std::byte one{};
  const auto huge = [&] {
    const kolo::ConstTensorView view(&one, kolo::DType::uint8, {std::int64_t{1} << 59});
    (void)kolo::reduce_scatter(context, view);
  };
  EXPECT_EQ(sentence_of(ErrorCode::out_of_memory, huge),
            "no memory for the result of unnamed reduce_scatter, 576460752303423488 bytes");
  kolo::barrier(context);
}

}  // namespace
