// SPDX-License-Identifier: Apache-2.0
//
// What a call refuses at once, in whichever way it is made, with the whole sentence; and what fails on every rank
// because ranks disagree. The job goes on.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::AllreduceOptions;
using kolo::Call;
using kolo::DType;
using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::Shape;
using kolo::TensorView;
using kolo::testing::has;
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::run_in;
using kolo::testing::sentence_of;
using kolo::testing::worlds;
using Splits = std::vector<std::int64_t>;

template <class Body>
std::string refused(const Body& body) {
  return sentence_of(ErrorCode::invalid_argument, body);
}

// ---------------------------------------------------------------- at the call

/// A call of a kind, and why it is refused.
struct Refusal {
  const char* kind;
  Call call;
  std::string why;
};

/// Blocking and started, with a name and without, and prepared.
void expect_refused(const std::vector<Refusal>& all) {
  for (const Refusal& one : all) {
    const std::string unnamed = "unnamed " + std::string(one.kind) + ": " + one.why;
    const std::string named = std::string(one.kind) + " of \"x\": ";
    EXPECT_EQ(refused([&] { kolo::run(kolo::world(), one.call); }), unnamed);
    EXPECT_EQ(refused([&] { kolo::run("x", one.call); }), named + one.why);
    EXPECT_EQ(refused([&] { (void)kolo::start(kolo::world(), one.call); }), unnamed);
    EXPECT_EQ(refused([&] { (void)kolo::start("x", one.call); }), named + one.why);
    const std::string prepared = refused([&] { (void)kolo::prepare("x", one.call); });
    if (prepared == named + one.why) continue;
    EXPECT_EQ(prepared, named + "it owns its result, which a prepared request cannot; use the call with _into, and "
                                "give the output");
  }
  std::vector<float> fine{1, 2};
  kolo::allreduce("x", kolo::view(fine));
  EXPECT_EQ(fine, (std::vector<float>{2, 4})) << "nobody waits for what was refused, and the name is free";
}

/// This rank's memory.
struct Memory {
  std::vector<float> x = std::vector<float>(6, 1), out = std::vector<float>(12);
  std::vector<double> wide = std::vector<double>(6);
  std::vector<std::int32_t> n = std::vector<std::int32_t>(6);
  std::array<bool, 6> flags{};
  TensorView whole = kolo::view(x), integers = kolo::view(n);
  kolo::ConstTensorView in = kolo::const_view(x), rows = kolo::const_view(x.data(), Shape{3, 2}),
                        scalar = kolo::const_view(x.data(), Shape{});
  int self = kolo::rank();
};

TEST(AtTheCall, Tensors) {
  run_in(2, [] {
    Memory m;
    const auto null = [](const std::string& what, int elements) {
      const std::string count = std::to_string(elements);
      return "the " + what + " is a null pointer, but its shape [" + count + "] has " + count +
             " elements; give the address of the first";
    };
    const auto none = [](std::size_t elements) { return kolo::view<float>(nullptr, elements); };
    const std::string overlap = "the input and the output overlap; ", apart = overlap + "give an output of its own",
                      or_in_place =
                          overlap + "use the call without _into to work in place, or give an output of its own",
                      or_rows = apart + ", or exactly this rank's rows of the input";
    const std::string types = "the input is float32, but the output is float64; they must agree",
                      shapes = "the input has shape [6], but the output has [5]; they must agree",
                      nothing = "its rows, of shape [0], have no elements; nothing can be gathered";
    const TensorView wide = kolo::view(m.wide), five = kolo::view(m.out.data(), 5);
    const kolo::ConstTensorView four = kolo::const_view(m.out.data(), 4);
    const auto behind = [&m](std::size_t first, std::size_t count) { return kolo::view(m.out.data() + first, count); };
    expect_refused({
        {"allreduce", Call::allreduce(none(4)), null("tensor", 4)},
        {"allreduce", Call::allreduce_into(m.in, none(6)), null("output", 6)},
        {"broadcast", Call::broadcast(none(1), 0), null("tensor", 1)},
        {"gather", Call::gather_into(m.in, none(4), m.self), null("output", 4)},
        {"allgather", Call::allgather(none(2)), null("input", 2)},
        {"reduce", Call::reduce_into(none(3), {}, 1 - m.self), null("tensor", 3)},

        {"allreduce", Call::allreduce_into(m.in, m.whole), or_in_place},
        {"allreduce", Call::allreduce_into(four, behind(1, 4)), or_in_place},
        {"reduce", Call::reduce_into(four, behind(2, 4), 0), or_in_place},
        {"allgather", Call::allgather_into(four, behind(3, 8)), apart},
        {"gather", Call::gather_into(four, behind(1, 11), 0), apart},
        {"alltoall", Call::alltoall_into(four, behind(2, 4)), apart},
        {"reduce_scatter", Call::reduce_scatter_into(four, behind(1, 2)), or_rows},
        {"scatter", Call::scatter_into(m.in, kolo::view(m.x.data() + 1, 3), m.self), or_rows},
        {"allgather_equal", Call::allgather_equal_into(kolo::const_view(m.out.data() + 1, 3), behind(0, 6)),
         or_rows.substr(0, or_rows.size() - 9) + "it as the input"},

        {"allreduce", Call::allreduce_into(m.in, wide), types},
        {"reduce", Call::reduce_into(m.in, wide, 0), types},
        {"gather", Call::gather_into(m.in, wide, 0), types},
        {"alltoall", Call::alltoall_into(m.in, wide), types},
        {"scatter", Call::scatter_into(kolo::const_view(m.wide), behind(0, 3), m.self),
         "the input is float64, but the output is float32; they must agree"},
        {"allreduce", Call::allreduce_into(m.in, five), shapes},
        {"broadcast", Call::broadcast_into(m.in, five, 0), shapes},
        {"reduce", Call::reduce_into(m.in, five, 0), shapes},
        {"alltoall", Call::alltoall_into(m.in, five),
         "the input has 6 elements, but the output has 5; they must agree"},
        {"allgather_equal", Call::allgather_equal_into(m.in, five),
         "the output has 5 elements, but 2 ranks give 6 each"},
        {"reduce_scatter", Call::reduce_scatter_into(m.rows, five),
         "the output has shape [5], but rank " + std::to_string(m.self) + "'s part of the input's [3, 2] is " +
             (m.self == 0 ? "[2, 2]" : "[1, 2]")},
        {"scatter", Call::scatter_into(kolo::const_view(m.x.data(), Shape{2, 3}), behind(0, 3), m.self),
         "the input has rows of shape [3], but the output has rows of []; they must agree"},
        {"allgather", Call::allgather(kolo::const_view(m.x.data(), Shape{2, 0})), nothing},
        {"gather", Call::gather(kolo::const_view(m.x.data(), Shape{6, 0}), 0), nothing},
    });
    EXPECT_EQ(m.x, std::vector<float>(6, 1));
    // Nothing lies nowhere, and side by side is no overlap.
    kolo::allreduce("nothing", none(0));
    kolo::allreduce_into(four, behind(4, 4));
  });
}

TEST(AtTheCall, RootsAndSplits) {
  run_in(2, [] {
    Memory m;
    const auto no_root = [](int root) {
      return "there is no root rank " + std::to_string(root) + "; a root is a rank of the group, 0 to 1";
    };
    const std::string self = "rank " + std::to_string(m.self), no_output = self + " is the root, and gets the result; "
                                                                                  "give an output";
    const auto uneven = [](int rows) {
      return "its " + std::to_string(rows) + " rows cannot be divided evenly among 2 ranks; give splits";
    };
    const auto sum = [](const std::string& of, int rows) {
      return "the splits sum up to " + of + ", but the input has " + std::to_string(rows) +
             " rows; all of them must go somewhere";
    };
    constexpr const char* kSplits = "alltoall with splits";
    constexpr const char* kKnown = "alltoall with splits of both sides";
    const TensorView to = kolo::view(m.out.data(), 3);
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    expect_refused({
        {"broadcast", Call::broadcast(m.whole, 2), no_root(2)},
        {"broadcast", Call::broadcast(m.whole, -1), no_root(-1)},
        {"reduce", Call::reduce(m.whole, 2), no_root(2)},
        {"reduce", Call::reduce_into(m.in, std::nullopt, 5), no_root(5)},
        {"gather", Call::gather(m.in, -1), no_root(-1)},
        {"scatter", Call::scatter_into(m.in, to, 2), no_root(2)},
        {"reduce", Call::reduce_into(m.in, {}, m.self), no_output},
        {"gather", Call::gather_into(m.in, std::nullopt, m.self), no_output},
        {"scatter", Call::scatter_into(std::nullopt, to, m.self),
         self + " is the root, whose rows the ranks get; give an input"},

        {"alltoall", Call::alltoall(m.rows), uneven(3)},
        {"scatter", Call::scatter_into(kolo::const_view(m.x.data(), 5), to, m.self), uneven(5)},
        {kSplits, Call::alltoall(m.rows, Splits{1, 1, 1}), "3 splits were given for 2 ranks; give one for each"},
        {"scatter", Call::scatter_into(m.in, to, m.self, Splits{6}),
         "1 splits were given for 2 ranks; give one for each"},
        {kSplits, Call::alltoall(m.rows, Splits{4, -1}), "a split is -1; they must not be negative"},
        {kSplits, Call::alltoall(m.rows, Splits{0, 2}), sum("2", 3)},
        {kSplits, Call::alltoall(m.rows, Splits{kMost, kMost}), sum("more than any tensor's rows", 3)},
        {"scatter", Call::scatter_into(m.in, to, m.self, Splits{3, 2}), sum("5", 6)},
        {kKnown, Call::alltoall_known_into(m.in, to, Splits{3, 2}, Splits{1, 2}), sum("5", 6)},
        {kKnown, Call::alltoall_known_into(m.in, to, Splits{3, 3}, Splits{3}),
         "1 received splits were given for 2 ranks; give one for each"},
        {kKnown, Call::alltoall_known_into(m.in, to, Splits{3, 3}, Splits{4, -1}),
         "a received split is -1; they must not be negative"},
        {kKnown, Call::alltoall_known_into(m.in, to, Splits{3, 3}, Splits{kMost, kMost}),
         "the received splits are more than any tensor's"},
        {kKnown, Call::alltoall_known_into(m.in, to, Splits{3, 3}, Splits{1, 1}),
         "the received splits sum up to 2 rows of shape [], but the output has 3 elements; the rows must fill it"},
        {kSplits, Call::alltoall(m.scalar, Splits{1, 0}),
         "a scalar has no rows to send; give a tensor of at least one dimension"},
        {"reduce_scatter", Call::reduce_scatter(m.scalar),
         "a scalar has no rows; give a tensor of at least one dimension"},
    });
    EXPECT_EQ(refused([&] { (void)kolo::broadcast_object(5, 7); }), "unnamed broadcast: " + no_root(7));
  });
}

TEST(AtTheCall, OptionsThatTheTypeDoesNotAllow) {
  run_in(2, [] {
    Memory m;
    const std::string no_average = " is not defined; use ReduceOp::sum and divide, or a floating-point type",
                      no_bits = " of float32 is not defined; use it with integers or booleans",
                      not_finite = "prescale and postscale must be finite numbers",
                      late = " ns; give a time greater than zero, or none for KOLO_TIMEOUT_S",
                      zero = "its timeout is 0";
    const auto scaled = [](const std::string& by) {
      return "int32 cannot be scaled by " + by + "; prescale and postscale need a floating-point type";
    };
    const auto sent = [](const std::string& as) {
      return "int32 cannot be sent as " + as + "; send_as needs a floating-point type";
    };
    const AllreduceOptions plain;
    const std::chrono::seconds none(0);
    std::vector<Refusal> all{
        {"allreduce", Call::allreduce(m.integers, ReduceOp::average), "the average of int32" + no_average},
        {"allreduce", Call::allreduce(kolo::view(m.flags), ReduceOp::average), "the average of bool" + no_average},
        {"reduce", Call::reduce(m.integers, 0, ReduceOp::average), "the average of int32" + no_average},
        {"reduce_scatter", Call::reduce_scatter(m.integers, ReduceOp::average), "the average of int32" + no_average},
        {"allreduce", Call::allreduce(m.whole, ReduceOp::bit_xor), "bit_xor" + no_bits},
        {"reduce", Call::reduce(m.whole, 0, ReduceOp::bit_and), "bit_and" + no_bits},
        {"reduce_scatter", Call::reduce_scatter(m.in, ReduceOp::bit_or), "bit_or" + no_bits},
        {"allreduce", Call::allreduce(m.integers, AllreduceOptions(plain).with_prescale(0.5)), scaled("0.5 and 1")},
        {"allreduce", Call::allreduce(m.integers, AllreduceOptions(plain).with_postscale(2)), scaled("1 and 2")},
        {"allreduce", Call::allreduce(m.whole, AllreduceOptions(plain).with_send_as(DType::float64)),
         "send_as is float64; only float16 and bfloat16 make sense"},
        {"allreduce", Call::allreduce(m.integers, AllreduceOptions(plain).with_send_as(DType::float16)),
         sent("float16")},
        {"reduce", Call::reduce(m.integers, 0, kolo::ReduceOptions{}.with_send_as(DType::float16)), sent("float16")},
        {"reduce_scatter", Call::reduce_scatter(m.integers, kolo::ReduceScatterOptions{}.with_send_as(DType::bfloat16)),
         sent("bfloat16")},
        {"allreduce", Call::allreduce(m.whole, AllreduceOptions(plain).with_timeout(none)), zero + late},
        {"barrier", Call::barrier(kolo::BarrierOptions{}.with_timeout(none)), zero + late},
        {"broadcast", Call::broadcast(m.whole, 0, kolo::BroadcastOptions{}.with_timeout(none)), zero + late},
        {"allgather", Call::allgather(m.in, kolo::AllgatherOptions{}.with_timeout(none)), zero + late},
        {"allreduce", Call::allreduce(m.whole, AllreduceOptions(plain).with_timeout(std::chrono::milliseconds(-2))),
         "its timeout is -2000000" + late},
    };
    for (const double scale : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      all.push_back({"allreduce", Call::allreduce(m.whole, AllreduceOptions(plain).with_prescale(scale)), not_finite});
      all.push_back({"allreduce", Call::allreduce(m.whole, AllreduceOptions(plain).with_postscale(scale)), not_finite});
    }
    for (int round = 0; round < 2; ++round) expect_refused(all);  // then the name is known
  });
}

/// Numbers that a cast has made values of an enum, before anything is said to others.
TEST(AtTheCall, NumbersOutsideAnEnum) {
  run_in(2, [] {
    Memory m;
    const TensorView odd_type(m.x.data(), static_cast<DType>(77), Shape{4});
    const TensorView odd_place(m.x.data(), DType::float32, Shape{4}, {static_cast<kolo::DeviceKind>(2), 0});
    const auto odd_op = static_cast<ReduceOp>(8);
    const std::string type = "its dtype is number 77, which does not exist; the last one is 12",
                      place = "its device kind is number 2, which does not exist; the last one is 1",
                      op = "its op is number 8, which does not exist; the last one is 7";
    expect_refused({
        {"allreduce", Call::allreduce(odd_type), type},
        {"allreduce", Call::allreduce(odd_place), place},
        {"allreduce", Call::allreduce(m.whole, odd_op), op},
        {"allreduce", Call::allreduce(m.whole, AllreduceOptions{}.with_send_as(static_cast<DType>(13))),
         "its send_as is number 13, which does not exist; the last one is 12"},
        {"allreduce", Call::allreduce_into(m.in, odd_type), type},
        {"broadcast", Call::broadcast(odd_type, 0), type},
        {"broadcast", Call::broadcast(odd_place, 0), place},
        {"allgather", Call::allgather(odd_type), type},
        {"alltoall", Call::alltoall(odd_type), type},
        {"alltoall with splits", Call::alltoall(odd_place, Splits{4, 0}), place},
        {"reduce_scatter", Call::reduce_scatter(m.in, odd_op), op},
        {"reduce_scatter", Call::reduce_scatter(odd_type), type},
    });
    EXPECT_EQ(refused([&] { kolo::grouped_allreduce("x", {{"a", odd_type}}); }), "allreduce of \"a\": " + type);
    EXPECT_EQ(m.x, std::vector<float>(6, 1));
  });
}

TEST(AtTheCall, CudaMemory) {
  kolo::Context context;
  std::vector<float> x(4);
  const TensorView view(x.data(), DType::float32, Shape{4}, {kolo::DeviceKind::cuda, 1});
  const std::string said = sentence_of(ErrorCode::unsupported, [&] { kolo::allreduce({context, "x"}, view); });
#ifdef KOLO_HAS_CUDA
  // No driver, no device, or no second one: the rest of the sentence is CUDA's.
  EXPECT_EQ(said.rfind("allreduce of \"x\": the tensor lies on cuda:1, but there is no ", 0), 0U) << said;
#else
  EXPECT_EQ(said,
            "allreduce of \"x\": the tensor lies on cuda:1, but no CUDA device can be used: this build has no CUDA "
            "part; give memory of the CPU");
#endif
}

TEST(AtTheCall, ShapesThatCannotBe) {
  EXPECT_TRUE(has(refused([] { (void)Shape{-1}; }), {"-1"}));
  EXPECT_TRUE(has(refused([] { (void)Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }), {"9", "8"}));
}

TEST(AtTheCall, Names) {
  run_in(2, [] {
    Memory m;
    const Call sum = Call::allreduce(m.whole), gather = Call::allgather(m.in);
    const std::string empty = "this call needs a name: give every tensor one of its own, the same on all ranks";
    const std::vector<std::pair<std::string, std::string>> wrong{
        {"", empty},
        {"kolo.x", "the name \"kolo.x\" is reserved: names that begin with \"kolo.\" are Kolo's own"},
        {std::string(65537, 'n'), "a name of 65537 bytes is too long; the longest has 65536"}};
    const kolo::Group world = kolo::world();
    for (const auto& [name, sentence] : wrong) {
      const kolo::Where where{world, name};
      for (const Call& call : {sum, gather, Call::barrier(), Call::grouped(kolo::Span<const Call>(&sum, 1))}) {
        EXPECT_EQ(refused([&, &where = where] { kolo::run(where, call); }), sentence);
        EXPECT_EQ(refused([&, &where = where] { (void)kolo::start(where, call); }), sentence);
      }
      EXPECT_EQ(refused([&, &where = where] { (void)kolo::prepare(where, sum); }), sentence);
    }
    EXPECT_EQ(refused([&] { (void)kolo::prepare(kolo::world(), sum); }), empty);
    for (const std::string& name : {std::string(65536, 'n'), std::string("koloX"), std::string("a\0b\n\xff", 5)})
      kolo::run(name, sum);  // only the dot makes it ours
  });
}

/// Members of a grouped allreduce.
TEST(AtTheCall, Members) {
  run_in(2, [] {
    Memory m;
    const std::string twice = "allreduce of \"x\": two of its members are named \"b\"; names within a grouped call "
                              "must differ";
    const auto part = [&m](std::size_t first, std::size_t count) { return kolo::view(m.x.data() + first, count); };
    const std::vector<std::pair<std::vector<kolo::NamedView>, std::string>> wrong{
        {{}, "allreduce of \"x\": a grouped call needs at least one member"},
        {{{"b", part(2, 2)}, {"a", part(0, 3)}},
         "allreduce of \"x\": its members \"a\" and \"b\" overlap; give each memory of its own"},
        {{{"a", m.whole}, {"b", m.integers}},
         "allreduce of \"b\": the average of int32 is not defined; use ReduceOp::sum and divide, or a floating-point "
         "type"},
        {{{"b", part(0, 1)}, {"a", part(1, 1)}, {"b", part(2, 1)}}, twice}};
    for (const auto& [members, sentence] : wrong) {
      const Call call = Call::grouped_allreduce(members, ReduceOp::average);
      EXPECT_EQ(refused([&] { kolo::run("x", call); }), sentence);
      EXPECT_EQ(refused([&] { (void)kolo::start("x", call); }), sentence);
      EXPECT_EQ(refused([&] { (void)kolo::prepare("x", call); }), sentence);
    }
  });
}

/// Calls of any kind as one.
TEST(AtTheCall, GroupsOfCalls) {
  run_in(2, [] {
    Memory m;
    std::vector<float> y(6, 2);
    const TensorView other = kolo::view(y), last = kolo::view(m.out.data() + 11, 1);
    const Call sum = Call::allreduce(m.whole, ReduceOp::sum), gather = Call::allgather(m.in);
    const std::string alone = "; they may differ in their tensors alone",
                      shared = "calls 0 and 1 use the same memory, and one of them writes it; give each its own",
                      itself = "call 1 is a barrier or a grouped call itself; only calls with tensors of their own are "
                               "grouped";
    const std::vector<std::pair<std::vector<Call>, std::string>> wrong{
        {{}, "it has no calls; give at least one"},
        {{sum, Call::broadcast(other, 0)},
         "its calls differ in the kind of collective: allreduce in call 0, broadcast in call 1" + alone},
        {{sum, Call::allreduce(other, ReduceOp::max)}, "its calls differ in op: sum in call 0, max in call 1" + alone},
        {{Call::reduce(m.whole, 0), Call::reduce(other, 1)},
         "its calls differ in root: 0 in call 0, 1 in call 1" + alone},
        {{sum, sum}, shared},
        {{Call::allgather_into(m.in, kolo::view(m.out)), Call::allgather_into(other, last)}, shared},
        {{gather, gather}, "call 0 owns its result; use the call with _into, and give the output"},
        {{Call::allreduce(other), Call::barrier()}, itself},
        {{Call::allreduce(other), Call::grouped(kolo::Span<const Call>(&sum, 1))}, itself}};
    for (const auto& [calls, why] : wrong) {
      EXPECT_EQ(refused([&, &calls = calls] { kolo::grouped("g", calls); }), "grouped call \"g\": " + why);
      EXPECT_EQ(refused([&, &calls = calls] { kolo::grouped(calls); }), "this grouped call: " + why);
    }
  });
}

// ---------------------------------------------------------------- ranks that disagree

/// Rank 2 of four says something else.
struct Disagreement {
  std::string of;  ///< the kind of collective, unless that is what they disagree about
  std::string about, usual, odd;
  Call usual_call, odd_call;
};

class Disagreements : public InWorlds {};
INSTANTIATE_TEST_SUITE_P(Worlds, Disagreements, worlds({{4, 0}, {4, 1}, {4, 3}}), name_of);

/// First under a name that nobody knows yet, then under one that has a number, then again.
TEST_P(Disagreements, FailOnEveryRankAndTheJobGoesOn) {
  run([] {
    std::vector<float> x(64, 1.0F);
    const auto part = [&](std::size_t first, std::size_t count) { return kolo::view(x.data() + first, count); };
    const auto of = [&](DType dtype, const Shape& shape) { return TensorView(x.data(), dtype, shape); };
    const auto shaped = [&](const Shape& shape) { return of(DType::float32, shape); };
    const TensorView four = part(0, 4), integers = of(DType::int32, {4});
    const AllreduceOptions plain;
    const std::string kind = "the kind of collective";
    using Members = std::vector<kolo::NamedView>;
    const kolo::NamedView a{"a", part(0, 2)}, b{"b", part(2, 2)}, c{"c", part(4, 2)};
    const Members ab{a, b}, abc{a, b, c}, acb{a, c, b}, longer{a, {"b", part(2, 3)}}, one{{"one", four}},
        another{{"another", four}};
    const auto grouped = [](const Members& members) { return Call::grouped_allreduce(members); };
    const std::vector<Disagreement> all{
        {"allreduce", "shape", "[2, 2]", "[2, 3]", Call::allreduce(shaped({2, 2})), Call::allreduce(shaped({2, 3}))},
        {"allreduce", "dtype", "float32", "int32", Call::allreduce(four), Call::allreduce(integers)},
        {"allreduce", "op", "sum", "max", Call::allreduce(four, ReduceOp::sum), Call::allreduce(four, ReduceOp::max)},
        {"allreduce", "prescale", "0.25", "0.5", Call::allreduce(four, AllreduceOptions(plain).with_prescale(0.25)),
         Call::allreduce(four, AllreduceOptions(plain).with_prescale(0.5))},
        {"allreduce", "postscale", "1", "3", Call::allreduce(four),
         Call::allreduce(four, AllreduceOptions(plain).with_postscale(3))},
        {"allreduce", "the type that is sent", "the tensor's own", "float16", Call::allreduce(four),
         Call::allreduce(four, AllreduceOptions(plain).with_send_as(DType::float16))},
        {"broadcast", "root", "1", "3", Call::broadcast(four, 1), Call::broadcast(four, 3)},
        {"reduce", "root", "1", "3", Call::reduce(four, 1), Call::reduce(four, 3)},
        {"gather", "root", "1", "3", Call::gather(four, 1), Call::gather(four, 3)},
        {"scatter", "root", "1", "3", Call::scatter_into(four, part(8, 1), 1), Call::scatter_into(four, part(8, 1), 3)},
        {"", kind, "allreduce", "broadcast", Call::allreduce(four), Call::broadcast(four, 0)},
        {"", kind, "allreduce", "reduce", Call::allreduce(four), Call::reduce(four, 0)},
        {"", kind, "allreduce", "barrier", Call::allreduce(four), Call::barrier()},
        {"", kind, "alltoall", "alltoall with splits", Call::alltoall(four), Call::alltoall(four, Splits{1, 1, 1, 1})},
        {"allreduce", "the number of tensors", "2", "3", grouped(ab), grouped(abc)},
        {"allreduce", "shape of tensor 1", "[2]", "[3]", grouped(ab), grouped(longer)},
        {"allreduce", "the name of tensor 1", "\"b\"", "\"c\"", grouped(abc), grouped(acb)},
        {"allreduce", "the name of tensor 0", "\"one\"", "\"another\"", grouped(one), grouped(another)},
        {"allreduce", "the name of tensor 0", "\"one\"", "none (no grouped call)", grouped(one), Call::allreduce(four)},
        {"allgather", "shape", "[*, 4]", "[*, 5]", Call::allgather(shaped({2, 4})), Call::allgather(shaped({2, 5}))},
        {"allgather_equal", "shape", "[3]", "[2]", Call::allgather_equal_into(part(0, 3), part(8, 12)),
         Call::allgather_equal_into(part(0, 2), part(8, 8))},
        {"alltoall", "shape", "[4]", "[8]", Call::alltoall(four), Call::alltoall(part(0, 8))},
        {"alltoall with splits", "shape", "[*, 4]", "[*, 5]", Call::alltoall(shaped({2, 4}), Splits{0, 2, 0, 0}),
         Call::alltoall(shaped({2, 5}), Splits{0, 2, 0, 0})},
        {"alltoall with splits", "dtype", "float32", "int32", Call::alltoall(four, Splits{1, 1, 1, 1}),
         Call::alltoall(integers, Splits{1, 2, 0, 1})},
        {"reduce_scatter", "shape", "[4]", "[5]", Call::reduce_scatter(four), Call::reduce_scatter(part(0, 5))},
        {"reduce_scatter", "op", "average", "min", Call::reduce_scatter(four, ReduceOp::average),
         Call::reduce_scatter(four, ReduceOp::min)},
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string name = "w" + std::to_string(i);
      const std::string sentence = "tensor \"" + name + '"' + (all[i].of.empty() ? "" : " of " + all[i].of) +
                                   ": ranks disagree about " + all[i].about + ": " + all[i].usual +
                                   " on ranks 0, 1 and 3; " + all[i].odd +
                                   " on rank 2. The operation did not run; submit the same on every rank.";
      const auto agree = [&](float value) {
        std::vector<float> y(4, value);
        kolo::allreduce(name, kolo::view(y));
        EXPECT_EQ(y, std::vector<float>(4, 4 * value)) << name;
      };
      const auto disagree = [&] {
        kolo::Handle handle = kolo::start(name, kolo::rank() == 2 ? all[i].odd_call : all[i].usual_call);
        // Then and at every later call, by exception and by value.
        for (int wait = 0; wait < 2; ++wait)
          EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { handle.wait(); }), sentence);
        EXPECT_TRUE(handle.done());
        EXPECT_EQ(handle.status()->message(), sentence);
      };
      disagree();
      agree(1);
      agree(2);
      disagree();
      disagree();
      agree(3);
    }
    EXPECT_EQ(x, std::vector<float>(64, 1.0F)) << "nothing was written";
    EXPECT_EQ(kolo::metrics().mismatches, 3 * all.size());
    EXPECT_EQ(kolo::metrics().failures, 3 * all.size());
  });
}

TEST(Disagreement, OfEveryRank) {
  kolo::run_local(3, [] {
    std::vector<float> x(static_cast<std::size_t>(kolo::rank() + 1), 1);
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { kolo::allreduce("w", kolo::view(x)); }),
              "tensor \"w\" of allreduce: ranks disagree about shape: [1] on rank 0; [2] on rank 1; [3] on rank 2. The "
              "operation did not run; submit the same on every rank.");
  });
}

/// The ranks that know the order by its number, against one that has another.
TEST(Disagreement, OfPreparedGroups) {
  kolo::run_local(3, [] {
    std::vector<float> x{1, 1}, y{100, 100};
    const kolo::NamedView first{"layer0", kolo::view(x)}, second{"layer1", kolo::view(y)};
    for (int turn = 0; turn < 2; ++turn) {
      kolo::Prepared same = kolo::prepare("g", kolo::Call::grouped_allreduce({first, second}));
      same.start().wait();
    }
    EXPECT_EQ(x[1], 9);
    EXPECT_EQ(y[1], 900);
    kolo::Prepared other = kolo::rank() == 1 ? kolo::prepare("g", kolo::Call::grouped_allreduce({second, first}))
                                             : kolo::prepare("g", kolo::Call::grouped_allreduce({first, second}));
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { other.start().wait(); }),
              "tensor \"g\" of allreduce: ranks disagree about the name of tensor 0: \"layer0\" on ranks 0 and 2; "
              "\"layer1\" on rank 1. The operation did not run; submit the same on every rank.");
    EXPECT_EQ(x[1], 9);
    EXPECT_EQ(y[1], 900);
  });
}

/// What is around a mismatch in the same batch, and in the same plan, is not touched by it.
TEST(Disagreement, InTheMiddleOfAStep) {
  kolo::run_local(4, [] {
    for (int step = 0; step < 20; ++step) {
      const bool bad = step % 5 == 4;
      std::vector<std::vector<float>> x(10, std::vector<float>(8, 1.0F));
      std::vector<kolo::Handle> handles;
      for (std::size_t k = 0; k < x.size(); ++k) {
        const bool odd = bad && k == 3 && kolo::rank() == step % 4;
        handles.push_back(kolo::allreduce_async("t" + std::to_string(k), kolo::view(x[k].data(), odd ? 7U : 8U)));
      }
      if (bad) {
        EXPECT_TRUE(has(sentence_of(ErrorCode::mismatch, [&] { kolo::wait_all(handles); }), {"tensor \"t3\""}));
      } else {
        kolo::wait_all(handles);
      }
      for (std::size_t k = 0; k < x.size(); ++k) {
        EXPECT_TRUE(handles[k].done());
        if (bad && k == 3) continue;
        EXPECT_EQ(x[k], std::vector<float>(8, 4.0F)) << "step " << step << " tensor " << k;
      }
      kolo::end_step();
    }
  });
}

/// A signature that changes on all ranks together is no mismatch.
TEST(Agreement, MayChange) {
  kolo::run_local(3, [] {
    for (std::size_t n = 1; n < 20; ++n) {
      std::vector<double> x(n, 1);
      kolo::allreduce("w", kolo::view(x), AllreduceOptions{}.with_op(n % 2 == 0 ? ReduceOp::sum : ReduceOp::average));
      EXPECT_EQ(x, std::vector<double>(n, n % 2 == 0 ? 3 : 1));
    }
  });
}

}  // namespace
