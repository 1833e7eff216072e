// SPDX-License-Identifier: Apache-2.0
//
// Everything that a caller can do wrong: the code and the sentence, at the call or on every rank, and that the job goes
// on afterwards.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>
#include <kolo/objects.hpp>

#include "errors.hpp"

namespace {

using kolo::AllreduceOptions;
using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::Shape;
using kolo::testing::has;
using kolo::testing::sentence_of;

// ---------------------------------------------------------------- at the call

class AtTheCall : public testing::Test {
 protected:
  /// What the call throws; afterwards the same name must work.
  template <class Call>
  std::string refused(Call&& call, ErrorCode code = ErrorCode::invalid_argument) {
    const std::string sentence = sentence_of(code, std::forward<Call>(call));
    std::vector<float> fine{1, 2};
    kolo::allreduce({context_, "x"}, kolo::view(fine));
    EXPECT_EQ(fine, (std::vector<float>{1, 2}));
    return sentence;
  }

  kolo::Context context_;
  std::vector<float> x_{1, 2, 3, 4};
  std::vector<int> n_{1, 2, 3, 4};
};

TEST_F(AtTheCall, NullPointer) {
  EXPECT_EQ(
      refused([&] {
        kolo::allreduce({context_, "x"}, kolo::view<float>(nullptr, 4));
      }),
      "allreduce of \"x\": the tensor is a null pointer, but its shape [4] has 4 elements; give the address of the "
      "first");
  EXPECT_EQ(
      refused([&] {
        kolo::allreduce_into({context_, "x"}, kolo::const_view(x_), kolo::view<float>(nullptr, 4));
      }),
      "allreduce of \"x\": the output is a null pointer, but its shape [4] has 4 elements; give the address of the "
      "first");
  EXPECT_EQ(
      refused([&] { kolo::broadcast(context_, kolo::view<float>(nullptr, 1), 0); }),
      "unnamed broadcast: the tensor is a null pointer, but its shape [1] has 1 elements; give the address of the "
      "first");
  EXPECT_EQ(refused([&] { kolo::gather_into(context_, kolo::const_view(x_), kolo::view<float>(nullptr, 4), 0); }),
            "unnamed gather: the output is a null pointer, but its shape [4] has 4 elements; give the address of the "
            "first");
  EXPECT_EQ(
      refused([&] {
        (void)kolo::allgather({context_, "x"}, kolo::const_view<float>(nullptr, 2));
      }),
      "allgather of \"x\": the input is a null pointer, but its shape [2] has 2 elements; give the address of the "
      "first");
  kolo::allreduce({context_, "nothing"}, kolo::view<float>(nullptr, 0));
}

TEST_F(AtTheCall, OverlappingOutput) {
  const std::string wanted =
      "allreduce of \"x\": the input and the output overlap; use the call without _into to work in place, or give an "
      "output of its own";
  EXPECT_EQ(refused([&] {
              kolo::allreduce_into({context_, "x"}, kolo::const_view(x_.data(), 3), kolo::view(x_.data() + 1, 3));
            }),
            wanted);
  EXPECT_EQ(refused([&] { kolo::allreduce_into({context_, "x"}, kolo::const_view(x_), kolo::view(x_)); }), wanted);
  std::vector<float> whole(8, 1);
  EXPECT_EQ(refused([&] {
              (void)kolo::allgather_into_async({context_, "x"}, kolo::const_view(whole.data(), 4),
                                               kolo::view(whole.data() + 3, 4));
            }),
            "allgather of \"x\": the input and the output overlap; give an output of its own");
  // Side by side is no overlap.
  kolo::allreduce_into({context_, "x"}, kolo::const_view(whole.data(), 4), kolo::view(whole.data() + 4, 4));
}

TEST_F(AtTheCall, InputAndOutputThatDoNotFit) {
  std::vector<double> wide(4);
  EXPECT_EQ(refused([&] {
              kolo::allreduce_into({context_, "x"}, kolo::const_view(x_), kolo::view(wide));
            }),
            "allreduce of \"x\": the input is float32, but the output is float64; they must agree");
  std::vector<float> longer(5);
  EXPECT_EQ(refused([&] {
              kolo::allreduce_into({context_, "x"}, kolo::const_view(x_), kolo::view(longer));
            }),
            "allreduce of \"x\": the input has shape [4], but the output has [5]; they must agree");
  EXPECT_EQ(refused([&] {
              (void)kolo::broadcast_into_async({context_, "x"}, kolo::const_view(x_), kolo::view(longer), 0);
            }),
            "broadcast of \"x\": the input has shape [4], but the output has [5]; they must agree");
}

TEST_F(AtTheCall, UnknownRoot) {
  EXPECT_EQ(refused([&] {
              kolo::broadcast({context_, "x"}, kolo::view(x_), 1);
            }),
            "broadcast of \"x\": there is no root rank 1; a root is a rank of the group, 0 to 0");
  EXPECT_EQ(refused([&] {
              kolo::broadcast({context_, "x"}, kolo::view(x_), -1);
            }),
            "broadcast of \"x\": there is no root rank -1; a root is a rank of the group, 0 to 0");
  EXPECT_EQ(refused([&] { (void)kolo::broadcast_object(context_, 5, 7); }),
            "unnamed broadcast: there is no root rank 7; a root is a rank of the group, 0 to 0");
}

TEST_F(AtTheCall, AverageOfIntegers) {
  EXPECT_EQ(refused([&] {
              kolo::allreduce({context_, "x"}, kolo::view(n_), AllreduceOptions{}.with_op(ReduceOp::average));
            }),
            "allreduce of \"x\": the average of int32 is not defined; use ReduceOp::sum and divide, or a "
            "floating-point type");
  std::array<bool, 2> flags{};
  EXPECT_EQ(refused([&] {
              kolo::allreduce({context_, "x"}, kolo::view(flags), AllreduceOptions{}.with_op(ReduceOp::average));
            }),
            "allreduce of \"x\": the average of bool is not defined; use ReduceOp::sum and divide, or a floating-point "
            "type");
}

TEST_F(AtTheCall, BitsOfFloats) {
  EXPECT_EQ(refused([&] {
              kolo::allreduce({context_, "x"}, kolo::view(x_), ReduceOp::bit_xor);
            }),
            "allreduce of \"x\": bit_xor of float32 is not defined; use it with integers or booleans");
  EXPECT_EQ(refused([&] { kolo::reduce(context_, kolo::view(x_), 0, ReduceOp::bit_and); }),
            "unnamed reduce: bit_and of float32 is not defined; use it with integers or booleans");
  EXPECT_EQ(refused([&] { (void)kolo::reduce_scatter(context_, kolo::view(x_), ReduceOp::bit_or); }),
            "unnamed reduce_scatter: bit_or of float32 is not defined; use it with integers or booleans");
}

TEST_F(AtTheCall, ScaledIntegers) {
  EXPECT_EQ(refused([&] {
              kolo::allreduce({context_, "x"}, kolo::view(n_), AllreduceOptions{}.with_prescale(0.5));
            }),
            "allreduce of \"x\": int32 cannot be scaled by 0.5 and 1; prescale and postscale need a "
            "floating-point type");
  EXPECT_EQ(refused([&] {
              kolo::allreduce({context_, "x"}, kolo::view(n_), AllreduceOptions{}.with_postscale(2));
            }),
            "allreduce of \"x\": int32 cannot be scaled by 1 and 2; prescale and postscale need a "
            "floating-point type");
}

TEST_F(AtTheCall, ScalesThatAreNoNumbers) {
  for (const double scale : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(refused([&] {
                kolo::allreduce({context_, "x"}, kolo::view(x_), AllreduceOptions{}.with_prescale(scale));
              }),
              "allreduce of \"x\": prescale and postscale must be finite numbers");
    EXPECT_EQ(refused([&] {
                kolo::allreduce({context_, "x"}, kolo::view(x_), AllreduceOptions{}.with_postscale(scale));
              }),
              "allreduce of \"x\": prescale and postscale must be finite numbers");
  }
}

TEST_F(AtTheCall, CudaMemory) {
  const kolo::TensorView view(x_.data(), kolo::DType::float32, kolo::Shape{4}, {kolo::DeviceKind::cuda, 1});
  const std::string said = refused([&] { kolo::allreduce({context_, "x"}, view); }, ErrorCode::unsupported);
#ifdef KOLO_HAS_CUDA
  // No driver, no device, or no second one: the rest of the sentence is CUDA's.
  const std::string wanted = "allreduce of \"x\": the tensor lies on cuda:1, but there is no ";
  EXPECT_EQ(said.substr(0, wanted.size()), wanted);
#else
  EXPECT_EQ(said,
            "allreduce of \"x\": the tensor lies on cuda:1, but no CUDA device can be used: this build has no CUDA "
            "part; give memory of the CPU");
#endif
}

TEST_F(AtTheCall, Names) {
  const std::string empty = "this call needs a name: give every tensor one of its own, the same on all ranks";
  EXPECT_EQ(refused([&] { kolo::allreduce({context_, ""}, kolo::view(x_)); }), empty);
  EXPECT_EQ(refused([&] { (void)kolo::allreduce_async({context_, ""}, kolo::view(x_)); }), empty);
  EXPECT_EQ(refused([&] { (void)kolo::allgather_async({context_, ""}, kolo::const_view(x_)); }), empty);
  EXPECT_EQ(refused([&] { (void)kolo::barrier_async({context_, ""}); }), empty);
  EXPECT_EQ(refused([&] { (void)kolo::prepare({context_, ""}, kolo::Call::allreduce(kolo::view(x_))); }), empty);
  const std::string reserved = "the name \"kolo.x\" is reserved: names that begin with \"kolo.\" are Kolo's own";
  EXPECT_EQ(refused([&] { kolo::allreduce({context_, "kolo.x"}, kolo::view(x_)); }), reserved);
  EXPECT_EQ(refused([&] {
              (void)kolo::grouped_allreduce_async({context_, "kolo.x"}, {{"m", kolo::view(x_)}});
            }),
            reserved);
  EXPECT_EQ(refused([&] {
              kolo::allreduce({context_, std::string(65537, 'n')}, kolo::view(x_));
            }),
            "a name of 65537 bytes is too long; the longest has 65536");
  const std::string longest(65536, 'n');
  kolo::allreduce({context_, longest}, kolo::view(x_));
  kolo::allreduce({context_, "koloX"}, kolo::view(x_));  // only the dot makes it ours
  kolo::allreduce({context_, std::string_view("a\0b\n\xff", 5)}, kolo::view(x_));
}

TEST_F(AtTheCall, Groups) {
  EXPECT_EQ(refused([&] {
              kolo::grouped_allreduce({context_, "x"}, {});
            }),
            "allreduce of \"x\": a grouped call needs at least one member");
  EXPECT_EQ(refused([&] {
              kolo::grouped_allreduce({context_, "x"},
                                      {{"b", kolo::view(x_.data() + 2, 2)}, {"a", kolo::view(x_.data(), 3)}});
            }),
            "allreduce of \"x\": its members \"a\" and \"b\" overlap; give each memory of its own");
  EXPECT_EQ(refused([&] {
              kolo::grouped_allreduce({context_, "x"}, {{"a", kolo::view(x_)}, {"b", kolo::view(n_)}},
                                      AllreduceOptions{}.with_op(ReduceOp::average));
            }),
            "allreduce of \"b\": the average of int32 is not defined; use ReduceOp::sum and divide, or a "
            "floating-point type");
}

TEST_F(AtTheCall, GroupsWithANameTwice) {
  const std::vector<kolo::NamedView> twice{
      {"b", kolo::view(x_.data(), 1)}, {"a", kolo::view(x_.data() + 1, 1)}, {"b", kolo::view(x_.data() + 2, 1)}};
  const std::string wanted =
      "allreduce of \"x\": two of its members are named \"b\"; names within a grouped call must differ";
  EXPECT_EQ(refused([&] { kolo::grouped_allreduce({context_, "x"}, twice); }), wanted);
  EXPECT_EQ(refused([&] { (void)kolo::grouped_allreduce_async({context_, "x"}, twice); }), wanted);
  EXPECT_EQ(refused([&] { (void)kolo::prepare({context_, "x"}, kolo::Call::grouped_allreduce(twice)); }), wanted);
}

/// Numbers that a cast has made values of an enum: in every collective, named and not, before anything is said to
/// others.
TEST_F(AtTheCall, NumbersOutsideAnEnum) {
  const kolo::TensorView odd_type(x_.data(), static_cast<kolo::DType>(77), Shape{4});
  const kolo::TensorView odd_place(x_.data(), kolo::DType::float32, Shape{4}, {static_cast<kolo::DeviceKind>(2), 0});
  const AllreduceOptions odd_op = AllreduceOptions{}.with_op(static_cast<ReduceOp>(8));
  const AllreduceOptions odd_wire = AllreduceOptions{}.with_send_as(static_cast<kolo::DType>(13));
  const std::string type = ": its dtype is number 77, which does not exist; the last one is 12";
  const std::string place = ": its device kind is number 2, which does not exist; the last one is 1";
  const std::string op = ": its op is number 8, which does not exist; the last one is 7";
  const std::string wire = ": its send_as is number 13, which does not exist; the last one is 12";
  EXPECT_EQ(refused([&] { kolo::allreduce(context_, odd_type); }), "unnamed allreduce" + type);
  EXPECT_EQ(refused([&] { kolo::allreduce(context_, odd_place); }), "unnamed allreduce" + place);
  EXPECT_EQ(refused([&] { kolo::allreduce(context_, kolo::view(x_), odd_op); }), "unnamed allreduce" + op);
  EXPECT_EQ(refused([&] { kolo::allreduce(context_, kolo::view(x_), odd_wire); }), "unnamed allreduce" + wire);
  EXPECT_EQ(refused([&] { kolo::allreduce({context_, "x"}, odd_type); }), "allreduce of \"x\"" + type);
  EXPECT_EQ(refused([&] { (void)kolo::allreduce_async({context_, "x"}, odd_type); }), "allreduce of \"x\"" + type);
  EXPECT_EQ(refused([&] {
              (void)kolo::allreduce_async({context_, "x"}, kolo::view(x_), odd_op);
            }),
            "allreduce of \"x\"" + op);
  EXPECT_EQ(refused([&] {
              (void)kolo::prepare({context_, "x"}, kolo::Call::allreduce(kolo::view(x_), odd_op));
            }),
            "allreduce of \"x\"" + op);
  EXPECT_EQ(refused([&] {
              kolo::allreduce_into({context_, "x"}, kolo::const_view(x_), odd_type);
            }),
            "allreduce of \"x\"" + type);
  EXPECT_EQ(refused([&] { kolo::grouped_allreduce({context_, "x"}, {{"a", odd_type}}); }), "allreduce of \"a\"" + type);
  EXPECT_EQ(refused([&] { kolo::broadcast(context_, odd_type, 0); }), "unnamed broadcast" + type);
  EXPECT_EQ(refused([&] { (void)kolo::broadcast_async({context_, "x"}, odd_place, 0); }), "broadcast of \"x\"" + place);
  EXPECT_EQ(refused([&] { (void)kolo::allgather(context_, odd_type); }), "unnamed allgather" + type);
  EXPECT_EQ(refused([&] { (void)kolo::allgather_async({context_, "x"}, odd_type); }), "allgather of \"x\"" + type);
  EXPECT_EQ(refused([&] { (void)kolo::alltoall(context_, odd_type); }), "unnamed alltoall" + type);
  EXPECT_EQ(refused([&] {
              (void)kolo::alltoall_async({context_, "x"}, odd_place, {4});
            }),
            "alltoall with splits of \"x\"" + place);
  EXPECT_EQ(refused([&] { (void)kolo::reduce_scatter(context_, kolo::view(x_), static_cast<ReduceOp>(8)); }),
            "unnamed reduce_scatter" + op);
  EXPECT_EQ(refused([&] {
              (void)kolo::reduce_scatter_async({context_, "x"}, odd_type);
            }),
            "reduce_scatter of \"x\"" + type);
  EXPECT_EQ(x_, (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(AtTheCall, AllgatherOfRowsOfNothing) {
  EXPECT_EQ(refused([&] {
              (void)kolo::allgather({context_, "x"}, kolo::const_view(x_.data(), kolo::Shape{2, 0}));
            }),
            "allgather of \"x\": its rows, of shape [0], have no elements; nothing can be gathered");
}

TEST_F(AtTheCall, ShapesThatCannotBe) {
  EXPECT_TRUE(has(sentence_of(ErrorCode::invalid_argument, [] { (void)kolo::Shape{-1}; }), {"-1"}));
  EXPECT_TRUE(
      has(sentence_of(ErrorCode::invalid_argument, [] { (void)kolo::Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }), {"9", "8"}));
}

// ---------------------------------------------------------------- a name is in flight once

TEST(Duplicates, InFlight) {
  // Rank 1 lets rank 0 try again while the first submission waits for it.
  std::promise<void> tried;
  const std::shared_future<void> was_tried = tried.get_future().share();
  kolo::run_local(2, [&] {
    std::vector<float> x{1};
    std::vector<float> y{10};
    if (kolo::rank() == 0) {
      kolo::Handle first = kolo::allreduce_async("x", kolo::view(x));
      const std::string wanted =
          "tensor \"x\" is already in flight: wait for its handle before submitting the name again, or give the second "
          "tensor another name";
      EXPECT_EQ(sentence_of(ErrorCode::duplicate_name, [&] { (void)kolo::allreduce_async("x", kolo::view(y)); }),
                wanted);
      EXPECT_EQ(sentence_of(ErrorCode::duplicate_name, [&] { kolo::allreduce("x", kolo::view(y)); }), wanted);
      EXPECT_EQ(sentence_of(ErrorCode::duplicate_name,
                            [&] { (void)kolo::prepare("x", kolo::Call::allreduce(kolo::view(y))); }),
                wanted);
      tried.set_value();
      first.wait();
    } else {
      was_tried.wait();
      kolo::allreduce("x", kolo::view(x));
    }
    EXPECT_EQ(x, std::vector<float>{2});
    EXPECT_EQ(y, std::vector<float>{10});
    kolo::allreduce("x", kolo::view(y));
    EXPECT_EQ(y, std::vector<float>{20});
  });
}

/// Many rounds of two threads that submit one name at the same time on every rank: one wins, or - where it was quick -
/// both, one after the other; what was refused was not reduced.
TEST(Duplicates, TwoThreadsAtOnce) {
  constexpr int kRounds = 200;
  std::vector<std::promise<void>> both_tried(kRounds);
  std::vector<std::shared_future<void>> were_tried;
  for (auto& one : both_tried) were_tried.push_back(one.get_future().share());
  kolo::run_local(2, [&] {
    kolo::Context& context = kolo::current_context();
    for (std::size_t round = 0; round < kRounds; ++round) {
      std::array<std::vector<float>, 2> x{std::vector<float>{1}, std::vector<float>{100}};
      if (kolo::rank() == 1) {  // nothing completes before both threads of rank 0 have tried
        were_tried[round].wait();
        kolo::allreduce("x", kolo::view(x[0]));
        continue;
      }
      std::array<kolo::Handle, 2> handles;
      std::atomic<int> at_the_line{0};
      std::atomic<int> refused{0};
      const auto submit = [&](std::size_t which) {
        at_the_line.fetch_add(1);
        while (at_the_line.load() < 2) std::this_thread::yield();
        try {
          handles[which] = kolo::allreduce_async({context, "x"}, kolo::view(x[which]));
        } catch (const kolo::Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::duplicate_name);
          refused.fetch_add(1);
        }
      };
      std::thread other(submit, 1);
      submit(0);
      other.join();
      both_tried[round].set_value();
      ASSERT_EQ(refused.load(), 1);
      const std::size_t winner = handles[0].valid() ? 0 : 1;
      handles[winner].wait();
      EXPECT_EQ(x[winner][0], winner == 0 ? 2.0F : 101.0F);
      EXPECT_EQ(x[1 - winner][0], winner == 0 ? 100.0F : 1.0F);
    }
  });
}

TEST(Duplicates, PreparedRequestsHoldTheirNames) {
  kolo::Context context;
  std::vector<float> x{1};
  std::vector<float> y{2};
  const std::string held = "the name \"x\" belongs to a prepared request: start that one, or use another name";
  {
    kolo::Prepared prepared = kolo::prepare({context, "x"}, kolo::Call::allreduce(kolo::view(x)));
    EXPECT_EQ(sentence_of(ErrorCode::duplicate_name,
                          [&] {
                            (void)kolo::prepare({context, "x"}, kolo::Call::allreduce(kolo::view(y)));
                          }),
              held);
    EXPECT_EQ(sentence_of(ErrorCode::duplicate_name, [&] { kolo::allreduce({context, "x"}, kolo::view(y)); }), held);
    prepared.start().wait();
    kolo::Prepared moved = std::move(prepared);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)prepared.start(); }),
              "this prepared request is empty: it was moved from, or never made");
    moved.start().wait();
  }
  kolo::allreduce({context, "x"}, kolo::view(y));
  kolo::Prepared again = kolo::prepare({context, "x"}, kolo::Call::broadcast(kolo::view(y), 0));
  again.start().wait();
}

TEST(Duplicates, PreparedRequestStartedTwice) {
  std::promise<void> tried;
  const std::shared_future<void> was_tried = tried.get_future().share();
  kolo::run_local(2, [&] {
    std::vector<float> x{1};
    kolo::Prepared prepared = kolo::prepare("x", kolo::Call::allreduce(kolo::view(x)));
    if (kolo::rank() == 1) was_tried.wait();
    kolo::Handle handle = prepared.start();
    if (kolo::rank() == 0) {
      EXPECT_EQ(sentence_of(ErrorCode::duplicate_name, [&] { (void)prepared.start(); }),
                "tensor \"x\" is already in flight: wait for its handle before submitting the name again, or give the "
                "second tensor another name");
      tried.set_value();
    }
    handle.wait();
    EXPECT_EQ(x, std::vector<float>{2});
    prepared.start().wait();
    EXPECT_EQ(x, std::vector<float>{4});
  });
}

// ---------------------------------------------------------------- ranks that disagree

/// One rank of four says something else.
struct Disagreement {
  const char* what;                            ///< the test's name
  std::function<kolo::Handle(bool odd)> call;  ///< on the name "w"; `odd`: on rank 2
  const char* sentence;
};

class Disagreements : public testing::TestWithParam<std::tuple<std::size_t, int>> {
 public:
  static const std::vector<Disagreement>& all();
};

/// Memory that all calls use: large enough, and nothing is ever reduced into it.
float* memory() {
  thread_local std::vector<float> contents(64, 1.0F);
  return contents.data();
}
kolo::TensorView four() { return kolo::view(memory(), 4); }

const std::vector<Disagreement>& Disagreements::all() {
  static const std::vector<Disagreement> list{
      {"Shape",
       [](bool odd) {
         return kolo::allreduce_async("w", kolo::view(memory(), kolo::Shape{2, odd ? 3 : 2}));
       },
       "tensor \"w\" of allreduce: ranks disagree about shape: [2, 2] on ranks 0, 1 and 3; [2, 3] on rank 2. The "
       "operation did not run; submit the same on every rank."},
      {"Dtype",
       [](bool odd) {
         return kolo::allreduce_async(
             "w", kolo::TensorView(memory(), odd ? kolo::DType::int32 : kolo::DType::float32, kolo::Shape{4}));
       },
       "tensor \"w\" of allreduce: ranks disagree about dtype: float32 on ranks 0, 1 and 3; int32 on rank 2. The "
       "operation did not run; submit the same on every rank."},
      {"Op",
       [](bool odd) {
         return kolo::allreduce_async("w", four(), AllreduceOptions{}.with_op(odd ? ReduceOp::max : ReduceOp::sum));
       },
       "tensor \"w\" of allreduce: ranks disagree about op: sum on ranks 0, 1 and 3; max on rank 2. The operation did "
       "not run; submit the same on every rank."},
      {"Root", [](bool odd) { return kolo::broadcast_async("w", four(), odd ? 3 : 1); },
       "tensor \"w\" of broadcast: ranks disagree about root: 1 on ranks 0, 1 and 3; 3 on rank 2. The operation did "
       "not run; submit the same on every rank."},
      {"RootOfAReduce", [](bool odd) { return kolo::reduce_async("w", four(), odd ? 3 : 1); },
       "tensor \"w\" of reduce: ranks disagree about root: 1 on ranks 0, 1 and 3; 3 on rank 2. The operation did not "
       "run; submit the same on every rank."},
      {"Prescale",
       [](bool odd) { return kolo::allreduce_async("w", four(), AllreduceOptions{}.with_prescale(odd ? 0.5 : 0.25)); },
       "tensor \"w\" of allreduce: ranks disagree about prescale: 0.25 on ranks 0, 1 and 3; 0.5 on rank 2. The "
       "operation did not run; submit the same on every rank."},
      {"Postscale",
       [](bool odd) { return kolo::allreduce_async("w", four(), AllreduceOptions{}.with_postscale(odd ? 3 : 1)); },
       "tensor \"w\" of allreduce: ranks disagree about postscale: 1 on ranks 0, 1 and 3; 3 on rank 2. The operation "
       "did not run; submit the same on every rank."},
      {"Kind",
       [](bool odd) { return odd ? kolo::broadcast_async("w", four(), 0) : kolo::allreduce_async("w", four()); },
       "tensor \"w\": ranks disagree about the kind of collective: allreduce on ranks 0, 1 and 3; broadcast on rank 2. "
       "The operation did not run; submit the same on every rank."},
      {"Barrier", [](bool odd) { return odd ? kolo::barrier_async("w") : kolo::allreduce_async("w", four()); },
       "tensor \"w\": ranks disagree about the kind of collective: allreduce on ranks 0, 1 and 3; barrier on rank 2. "
       "The operation did not run; submit the same on every rank."},
      {"NumberOfMembers",
       [](bool odd) {
         std::vector<kolo::NamedView> members{{"a", kolo::view(memory(), 2)}, {"b", kolo::view(memory() + 2, 2)}};
         if (odd) members.push_back({"c", kolo::view(memory() + 4, 2)});
         return kolo::grouped_allreduce_async("w", members);
       },
       "tensor \"w\" of allreduce: ranks disagree about the number of tensors: 2 on ranks 0, 1 and 3; 3 on rank 2. The "
       "operation did not run; submit the same on every rank."},
      {"ShapeOfAMember",
       [](bool odd) {
         return kolo::grouped_allreduce_async(
             "w", {{"a", kolo::view(memory(), 2)}, {"b", kolo::view(memory() + 2, odd ? 3U : 2U)}});
       },
       "tensor \"w\" of allreduce: ranks disagree about shape of tensor 1: [2] on ranks 0, 1 and 3; [3] on rank 2. The "
       "operation did not run; submit the same on every rank."},
      {"OrderOfMembers",
       [](bool odd) {
         const kolo::NamedView a{"a", kolo::view(memory(), 2)}, b{"b", kolo::view(memory() + 2, 2)},
             c{"c", kolo::view(memory() + 4, 2)};
         return odd ? kolo::grouped_allreduce_async("w", {a, c, b}) : kolo::grouped_allreduce_async("w", {a, b, c});
       },
       "tensor \"w\" of allreduce: ranks disagree about the name of tensor 1: \"b\" on ranks 0, 1 and 3; \"c\" on rank "
       "2. "
       "The operation did not run; submit the same on every rank."},
      {"NameOfALoneMember",
       [](bool odd) {
         return kolo::grouped_allreduce_async("w", {{odd ? "another" : "one", four()}});
       },
       "tensor \"w\" of allreduce: ranks disagree about the name of tensor 0: \"one\" on ranks 0, 1 and 3; \"another\" "
       "on "
       "rank 2. The operation did not run; submit the same on every rank."},
      {"GroupOrNone",
       [](bool odd) {
         return odd ? kolo::allreduce_async("w", four()) : kolo::grouped_allreduce_async("w", {{"one", four()}});
       },
       "tensor \"w\" of allreduce: ranks disagree about the name of tensor 0: \"one\" on ranks 0, 1 and 3; none (no "
       "grouped call) on rank 2. The operation did not run; submit the same on every rank."},
      {"TrailingDimensions",
       [](bool odd) -> kolo::Handle {
         return kolo::allgather_async("w", kolo::const_view(memory(), kolo::Shape{2, odd ? 5 : 4}));
       },
       "tensor \"w\" of allgather: ranks disagree about shape: [*, 4] on ranks 0, 1 and 3; [*, 5] on rank 2. The "
       "operation "
       "did not run; submit the same on every rank."},
      {"RowsWithoutSplits",
       [](bool odd) -> kolo::Handle { return kolo::alltoall_async("w", kolo::const_view(memory(), odd ? 8U : 4U)); },
       "tensor \"w\" of alltoall: ranks disagree about shape: [4] on ranks 0, 1 and 3; [8] on rank 2. The operation "
       "did not run; submit the same on every rank."},
      {"TrailingDimensionsWithSplits",
       [](bool odd) -> kolo::Handle {
         return kolo::alltoall_async("w", kolo::const_view(memory(), Shape{2, odd ? 5 : 4}), {0, 2, 0, 0});
       },
       "tensor \"w\" of alltoall with splits: ranks disagree about shape: [*, 4] on ranks 0, 1 and 3; [*, 5] on rank "
       "2. The "
       "operation did not run; submit the same on every rank."},
      {"DtypeWithSplits",
       [](bool odd) -> kolo::Handle {
         return kolo::alltoall_async(
             "w", kolo::ConstTensorView(memory(), odd ? kolo::DType::int32 : kolo::DType::float32, Shape{4}),
             {1, odd ? 2 : 1, odd ? 0 : 1, 1});
       },
       "tensor \"w\" of alltoall with splits: ranks disagree about dtype: float32 on ranks 0, 1 and 3; int32 on rank "
       "2. The operation did not run; submit the same on every rank."},
      {"SplitsOrNone",
       [](bool odd) -> kolo::Handle {
         if (odd) return kolo::alltoall_async("w", kolo::const_view(memory(), 4), {1, 1, 1, 1});
         return kolo::alltoall_async("w", kolo::const_view(memory(), 4));
       },
       "tensor \"w\": ranks disagree about the kind of collective: alltoall on ranks 0, 1 and 3; alltoall with splits "
       "on rank 2. The operation did not run; submit the same on every rank."},
      {"RowsToScatter",
       [](bool odd) -> kolo::Handle {
         return kolo::reduce_scatter_async("w", kolo::const_view(memory(), odd ? 5U : 4U));
       },
       "tensor \"w\" of reduce_scatter: ranks disagree about shape: [4] on ranks 0, 1 and 3; [5] on rank 2. The "
       "operation did not run; submit the same on every rank."},
      {"OpToScatter",
       [](bool odd) -> kolo::Handle {
         return kolo::reduce_scatter_async("w", four(), odd ? ReduceOp::min : ReduceOp::average);
       },
       "tensor \"w\" of reduce_scatter: ranks disagree about op: average on ranks 0, 1 and 3; min on rank 2. The "
       "operation did not run; submit the same on every rank."},
  };
  return list;
}

/// First under a name that nobody knows yet, then under one that has a number, then again.
TEST_P(Disagreements, FailOnEveryRankAndTheJobGoesOn) {
  const Disagreement& disagreement = all()[std::get<0>(GetParam())];
  kolo::run_local(
      4,
      [&] {
        const auto agree = [](float value) {
          std::vector<float> x(4, value);
          kolo::allreduce("w", kolo::view(x));
          EXPECT_EQ(x, std::vector<float>(4, 4 * value));
        };
        const auto disagree = [&] {
          kolo::Handle handle = disagreement.call(kolo::rank() == 2);
          EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { handle.wait(); }), disagreement.sentence);
          // Then and at every later call, by exception and by value.
          EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { handle.wait(); }), disagreement.sentence);
          EXPECT_TRUE(handle.done());
          EXPECT_EQ(handle.status()->message(), disagreement.sentence);
        };
        disagree();
        agree(1);
        agree(2);
        disagree();
        disagree();
        agree(3);
        EXPECT_EQ(kolo::metrics().mismatches, 3U);
        EXPECT_EQ(kolo::metrics().failures, 3U);
      },
      kolo::Options{}
          .with_setting("KOLO_RANKS_PER_NODE", std::to_string(std::get<1>(GetParam())))
          .with_setting("KOLO_TIMEOUT_S", "60"));
}

INSTANTIATE_TEST_SUITE_P(All, Disagreements,
                         testing::Combine(testing::Range<std::size_t>(0, 21), testing::Values(0, 1, 3)),
                         [](const auto& info) {
                           return std::string(Disagreements::all()[std::get<0>(info.param)].what) + "_" +
                                  std::to_string(std::get<1>(info.param)) + "pernode";
                         });

TEST(DisagreementList, IsTestedToItsEnd) { EXPECT_EQ(Disagreements::all().size(), 21U); }

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

TEST(Disagreement, OfUnnamedCalls) {
  kolo::run_local(3, [] {
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 3);
    std::vector<float> x(4, 1);
    EXPECT_EQ(sentence_of(ErrorCode::mismatch,
                          [&] {
                            if (kolo::rank() == 1) {
                              kolo::barrier();
                            } else {
                              kolo::allreduce(kolo::view(x));
                            }
                          }),
              "unnamed call number 2: ranks disagree about the kind of collective: allreduce on ranks 0 and 2; barrier "
              "on rank 1. The operation did not run; submit the same on every rank.");
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 3);
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

TEST(AllgatherInto, WrongSizeFailsOnThatRankAlone) {
  for (const int ranks_per_node : {0, 1, 2}) {
    kolo::run_local(
        3,
        [] {
          for (int round = 0; round < 3; ++round) {
            const std::vector<int> in(2, kolo::rank());
            std::vector<int> out(kolo::rank() == 1 ? 5 : 6, -1);
            kolo::Handle handle = kolo::allgather_into_async("g", kolo::const_view(in), kolo::view(out));
            if (kolo::rank() == 1) {
              EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { handle.wait(); }),
                        "the output of allgather of \"g\" has 5 elements, but the ranks together gave 6");
              EXPECT_EQ(out, std::vector<int>(5, -1));
            } else {
              handle.wait();
              EXPECT_EQ(out, (std::vector<int>{0, 0, 1, 1, 2, 2}));
            }
          }
          const std::vector<int> in(2, kolo::rank());
          std::vector<int> out(6, -1);
          kolo::allgather_into_async("g", kolo::const_view(in), kolo::view(out)).wait();
          EXPECT_EQ(out, (std::vector<int>{0, 0, 1, 1, 2, 2}));
        },
        kolo::Options{}.with_setting("KOLO_RANKS_PER_NODE", std::to_string(ranks_per_node)));
  }
}

// ---------------------------------------------------------------- handles

TEST(Handles, Empty) {
  kolo::Context context;
  kolo::Handle empty;
  const std::string wanted = "this handle is empty: it was moved from, or never started";
  EXPECT_FALSE(empty.valid());
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { empty.wait(); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)empty.wait_for(std::chrono::seconds(1)); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)empty.done(); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)empty.status(); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { empty.on_done([](const kolo::Status&) {}); }), wanted);
  std::vector<float> x{1};
  std::vector<kolo::Handle> handles(2);
  handles[0] = kolo::allreduce_async({context, "x"}, kolo::view(x));
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { kolo::wait_all(handles); }), wanted);
  kolo::Handle moved = std::move(handles[0]);
  EXPECT_FALSE(handles[0].valid());
  moved.wait();
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { moved.on_done({}); }), "on_done needs something to call");
  kolo::wait_all({});
}

TEST(Handles, ResultsAreTakenOnce) {
  kolo::Context context;
  const std::vector<float> x{1, 2};
  kolo::Future<kolo::Tensor> future = kolo::allgather_async({context, "x"}, kolo::const_view(x));
  const kolo::Tensor result = future.get();
  EXPECT_EQ(result.as<float>()[1], 2.0F);
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)future.get(); }),
            "the result of this operation has been taken already");
  EXPECT_TRUE(
      has(sentence_of(ErrorCode::invalid_argument, [&] { (void)result.as<double>(); }), {"float32", "float64"}));
}

TEST(Handles, CallbacksMayStartOperations) {
  kolo::run_local(2, [] {
    kolo::Context& context = kolo::current_context();  // the thread that calls back may have none of its own
    std::vector<float> x{1};
    std::vector<float> y{1};
    kolo::Handle first = kolo::allreduce_async("x", kolo::view(x));
    std::promise<kolo::Handle> started;
    first.on_done([&](const kolo::Status& status) {
      EXPECT_TRUE(status.ok());
      started.set_value(kolo::allreduce_async({context, "y"}, kolo::view(y)));
    });
    first.wait();
    started.get_future().get().wait();
    EXPECT_EQ(y, std::vector<float>{2});
  });
}

TEST(Handles, EveryWayOfWaitingInsideACallback) {
  kolo::run_local(2, [] {
    kolo::Context& context = kolo::current_context();
    std::vector<float> x{1};
    std::vector<float> y{1};
    kolo::Handle late = kolo::allreduce_async("late", kolo::view(y));  // rank 1 submits it after the callback
    if (kolo::rank() == 0) {
      kolo::Handle first = kolo::allreduce_async("x", kolo::view(x));
      std::promise<void> called;
      first.on_done([&](const kolo::Status&) {
        const std::string wanted =
            "a callback of on_done must not wait for an operation: start it there, and wait elsewhere";
        kolo::Handle open = kolo::barrier_async({context, "open"});
        EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { open.wait(); }), wanted);
        EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)open.wait_for(std::chrono::seconds(9)); }),
                  wanted);
        EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { kolo::wait_all(kolo::Span<kolo::Handle>(&open, 1)); }),
                  wanted);
        EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { kolo::barrier(context); }), wanted);
        EXPECT_FALSE(open.done());  // looking is allowed
        called.set_value();
      });
      first.wait();
      called.get_future().wait();
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
      kolo::barrier_async("open2").wait();
    } else {
      kolo::allreduce("x", kolo::view(x));
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);  // rank 0's callback has run
      kolo::Handle open = kolo::barrier_async("open");
      open.wait();
      kolo::barrier_async("open2").wait();
    }
    late.wait();
  });
}

TEST(Handles, CallbacksThatThrowAreLoggedAndDropped) {
  std::mutex mutex;
  std::vector<std::string> errors;
  const auto sink = [&](const kolo::LogRecord& record) {
    const std::lock_guard lock(mutex);
    if (record.level == kolo::LogLevel::error) errors.push_back(record.message);
  };
  {
    kolo::Context context(kolo::Options{}.with_log_sink(sink));
    std::vector<float> x{1};
    std::promise<void> second;
    kolo::Handle handle = kolo::allreduce_async({context, "x"}, kolo::view(x));
    bool inline_throw = false;
    try {
      handle.on_done([](const kolo::Status&) { throw std::runtime_error("mine"); });
    } catch (const std::runtime_error&) {
      inline_throw = true;
    }
    handle.on_done([&](const kolo::Status&) { second.set_value(); });
    second.get_future().wait();
    EXPECT_FALSE(inline_throw) << "an exception of a callback that runs at once is dropped, too";
    kolo::allreduce({context, "x"}, kolo::view(x));
  }
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0], "a callback of on_done threw an exception, which was dropped: mine");
}

// ---------------------------------------------------------------- settings

TEST(Settings, BadValuesNameTheVariableTheValueAndTheRange) {
  const auto refused = [](const char* name, const char* value) {
    const kolo::Options options = kolo::Options{}.with_setting(name, value);
    std::atomic<int> ran{0};
    const std::string sentence = sentence_of(ErrorCode::invalid_setting, [&] {
      kolo::run_local(
          3, [&] { ++ran; }, options);
    });
    EXPECT_EQ(ran.load(), 0) << "the body of a world that cannot be made runs nowhere";
    const std::string alone = sentence_of(ErrorCode::invalid_setting, [&] { const kolo::Context context(options); });
    EXPECT_TRUE(has(sentence, {alone.c_str()}));
    return sentence;
  };
  EXPECT_TRUE(has(refused("KOLO_TIMEOUT_S", "soon"), {"KOLO_TIMEOUT_S", "soon", "0.001 .. 1000000000"}));
  EXPECT_TRUE(has(refused("KOLO_TIMEOUT_S", "0"), {"KOLO_TIMEOUT_S", "\"0\"", "0.001 .. 1000000000"}));
  EXPECT_TRUE(has(refused("KOLO_TIMEOUT_S", "nan"), {"KOLO_TIMEOUT_S", "nan", "0.001 .. 1000000000"}));
  EXPECT_TRUE(has(refused("KOLO_SLOTS", "65"), {"KOLO_SLOTS", "\"65\"", "0 .. 64"}));
  EXPECT_TRUE(has(refused("KOLO_PLAN", "perhaps"), {"KOLO_PLAN", "perhaps", "true or false"}));
  EXPECT_TRUE(has(refused("KOLO_LOG_LEVEL", "loud"), {"KOLO_LOG_LEVEL", "loud", "trace, debug, info"}));
  EXPECT_TRUE(has(refused("KOLO_FUSION_THRESHOLD", "-1"), {"KOLO_FUSION_THRESHOLD", "-1", "0 .. 1T"}));
  EXPECT_TRUE(has(refused("KOLO_INTERFACE", "10.1.0.0/99"),
                  {"KOLO_INTERFACE=10.1.0.0/99 matches no address of this machine; give an interface's name, "}));
  EXPECT_TRUE(has(refused("KOLO_TIMEOUTS", "1"), {"KOLO_TIMEOUTS", "did you mean KOLO_TIMEOUT_S?"}));
}

// ---------------------------------------------------------------- life

TEST(Life, ContextThatWasMovedFrom) {
  kolo::Context context;
  kolo::Context other = std::move(context);
  const std::string wanted = "this context was moved from";
  EXPECT_EQ(sentence_of(ErrorCode::not_initialized, [&] { (void)context.rank(); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::not_initialized, [&] { kolo::barrier(context); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::not_initialized, [&] { (void)kolo::metrics(context); }), wanted);
  context.shutdown();  // nothing to leave
  kolo::barrier(other);
  context = std::move(other);
  kolo::barrier(context);
}

TEST(Life, UseAfterShutdown) {
  kolo::Context context;
  std::vector<float> x{1};
  kolo::Prepared prepared = kolo::prepare({context, "p"}, kolo::Call::allreduce(kolo::view(x)));
  kolo::Handle done = kolo::allreduce_async({context, "x"}, kolo::view(x));
  done.wait();
  context.shutdown();
  context.shutdown();  // a second call does nothing
  const std::string wanted = "this context was shut down";
  EXPECT_EQ(sentence_of(ErrorCode::shut_down, [&] { kolo::allreduce({context, "x"}, kolo::view(x)); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::shut_down,
                        [&] {
                          (void)kolo::allreduce_async({context, "x"}, kolo::view(x));
                        }),
            wanted);
  EXPECT_EQ(sentence_of(ErrorCode::shut_down, [&] { kolo::barrier(context); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::shut_down, [&] { kolo::end_step(context); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::shut_down, [&] { (void)prepared.start(); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::shut_down,
                        [&] {
                          (void)kolo::prepare({context, "q"}, kolo::Call::allreduce(kolo::view(x)));
                        }),
            wanted);
  EXPECT_EQ(context.rank(), 0);
  done.wait();  // its outcome stays
}

TEST(Life, OpenOperationsFailAtShutdown) {
  kolo::run_local(2, [] {
    std::vector<float> x{1};
    kolo::Handle handle;
    if (kolo::rank() == 0) handle = kolo::allreduce_async("x", kolo::view(x));
    kolo::current_context().shutdown();
    if (kolo::rank() == 0) {
      ASSERT_TRUE(handle.done());
      const ErrorCode code = handle.status()->code();
      EXPECT_TRUE(code == ErrorCode::shut_down || code == ErrorCode::rank_lost) << handle.status()->message();
      EXPECT_THROW(handle.wait(), kolo::Error);
    }
  });
}

TEST(Life, InitTwiceAndAgain) {
  EXPECT_FALSE(kolo::is_initialized());
  EXPECT_EQ(sentence_of(ErrorCode::not_initialized, [] { (void)kolo::rank(); }),
            "this thread has no context: call kolo::init() first (or make a kolo::Session, pass a kolo::Context, or "
            "bind one to this thread by a kolo::ContextGuard)");
  kolo::shutdown();  // nothing to do
  for (int round = 0; round < 3; ++round) {
    kolo::init();
    EXPECT_TRUE(kolo::is_initialized());
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [] { kolo::init(); }),
              "kolo::init was called before, and kolo::shutdown has not been");
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [] { const kolo::Session session; }),
              "kolo::init was called before, and kolo::shutdown has not been");
    EXPECT_EQ(kolo::allreduce(3, ReduceOp::sum), 3);  // still there
    kolo::shutdown();
    EXPECT_FALSE(kolo::is_initialized());
  }
  EXPECT_TRUE(
      has(sentence_of(ErrorCode::invalid_setting, [] { kolo::init(kolo::Options{}.with_setting("KOLO_SLOTS", "65")); }),
          {"KOLO_SLOTS"}));
  kolo::init();  // after an init that failed
  kolo::shutdown();
}

TEST(Life, SessionsAndGuards) {
  {
    const kolo::Session session;
    EXPECT_TRUE(kolo::is_initialized());
    kolo::run_local(2, [] {
      const kolo::Session inner;  // joins what is bound to the thread
      EXPECT_EQ(kolo::size(), 2);
      kolo::barrier();
    });
    EXPECT_EQ(kolo::size(), 1);
  }
  EXPECT_FALSE(kolo::is_initialized());
  kolo::run_local(3, [] {
    { const kolo::Session session; }
    EXPECT_EQ(kolo::size(), 3);  // the session left it alone
    kolo::Context alone;
    {
      const kolo::ContextGuard guard(alone);
      EXPECT_EQ(kolo::size(), 1);
      kolo::Context another;
      const kolo::ContextGuard inner(another);
      EXPECT_EQ(kolo::allreduce(7, ReduceOp::sum), 7);
      EXPECT_EQ(&kolo::current_context(), &another);
    }
    EXPECT_EQ(kolo::size(), 3);
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 3);
  });
}

TEST(Life, WorldsInsideWorlds) {
  kolo::run_local(2, [] {
    const int outer = kolo::rank();
    kolo::run_local(3, [outer] { EXPECT_EQ(kolo::allreduce(outer + 1, ReduceOp::sum), 3 * (outer + 1)); });
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
  });
}

TEST(Life, RunLocalNeedsARank) {
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [] { kolo::run_local(0, [] {}); }),
            "run_local needs at least one rank, not 0");
}

}  // namespace
