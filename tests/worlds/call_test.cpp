// SPDX-License-Identifier: Apache-2.0
//
// Collectives as values: prepared ones, groups of them, and what fails later than at the call.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::Call;
using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::sentence_of;
using kolo::testing::worlds;

class Calls : public InWorlds {
 protected:
  Calls() : InWorlds({{"KOLO_SLOT_BYTES", "256"}}) {}
};
INSTANTIATE_TEST_SUITE_P(Worlds, Calls, worlds({{1, 0}, {2, 0}, {3, 0}, {4, 2}, {3, 2}, {2, 1}}), name_of);

/// Converts to a name.
struct Label {
  std::string text;
  operator std::string_view() const { return text; }
};

/// What a call is given first, in a function of the user's own.
std::string told(const kolo::Where& where) {
  return std::to_string(kolo::size(where.group())) + ' ' + std::string(where.name().value_or("-"));
}

TEST(Where, IsAGroupANameOrBoth) {
  kolo::run_local(2, [] {
    const kolo::Group alone = kolo::world().split(kolo::rank());
    kolo::Context& context = kolo::current_context();
    const std::string text = "text";
    const char* const characters = "characters";
    char array[8] = "array";
    EXPECT_EQ(told(context), "2 -");
    EXPECT_EQ(told(alone), "1 -");
    EXPECT_EQ(told(kolo::world()), "2 -");
    EXPECT_EQ(told("literal"), "2 literal");
    EXPECT_EQ(told(text), "2 text");
    EXPECT_EQ(told(text + '2'), "2 text2");
    EXPECT_EQ(told(std::string_view(text).substr(2)), "2 xt");
    EXPECT_EQ(told(characters), "2 characters");
    EXPECT_EQ(told(array), "2 array");
    EXPECT_EQ(told(Label{"label"}), "2 label");
    EXPECT_EQ(told({alone, "literal"}), "1 literal");
    EXPECT_EQ(told({context, text}), "2 text");
    EXPECT_EQ(told({kolo::world(), text + '2'}), "2 text2");
    EXPECT_EQ(told({alone, Label{"label"}}), "1 label");
    // An empty name is a name, which calls refuse.
    EXPECT_EQ(told(""), "2 ");
    EXPECT_EQ(told(std::string_view()), "2 ");
    const char* const none = nullptr;
    EXPECT_EQ(told(none), "2 ");
    EXPECT_EQ(told({alone, none}), "1 ");
  });
  const kolo::Where named = "x";
  EXPECT_EQ(sentence_of(ErrorCode::not_initialized, [&] { (void)named.group(); }),
            sentence_of(ErrorCode::not_initialized, [] { (void)kolo::current_context(); }));
}
static_assert(sizeof(kolo::Where) <= 3 * sizeof(void*) && std::is_trivially_destructible_v<kolo::Where>);
static_assert(!std::is_copy_constructible_v<kolo::Where> && !std::is_default_constructible_v<kolo::Where>);
static_assert(!std::is_convertible_v<std::nullptr_t, kolo::Where> && !std::is_convertible_v<int, kolo::Where>);
static_assert(!std::is_convertible_v<kolo::TensorView, kolo::Where> && !std::is_convertible_v<float*, kolo::Where>);
static_assert(!std::is_constructible_v<kolo::Where, kolo::Group, std::nullptr_t>);

TEST(Where, EveryFormTakesIt) {
  kolo::run_local(2, [] {
    std::vector<float> x(2, 1), both(4);
    std::string name;
    const auto next = [&name]() -> const std::string& { return name = std::to_string(std::stoi('0' + name) + 1); };
    const kolo::Group group = kolo::world().split(0);
    kolo::barrier(next());
    kolo::barrier({group, next()});
    kolo::barrier_async({group, next()}).wait();
    kolo::grouped_allreduce({{"x", kolo::view(x)}});
    kolo::grouped_allreduce(next(), {{"x", kolo::view(x)}}, ReduceOp::average);
    kolo::grouped_allreduce({group, next()}, {{"x", kolo::view(x)}});
    kolo::grouped_allreduce_async(group, {{"x", kolo::view(x)}}).wait();
    EXPECT_EQ(x, std::vector<float>(2, 8));
    EXPECT_EQ(kolo::allreduce(next(), 1), 2);
    EXPECT_EQ(kolo::allreduce({group, next()}, 1.5, ReduceOp::max), 1.5);
    kolo::allgather_equal_into(kolo::const_view(x), kolo::view(both));
    kolo::allgather_equal_into_async({group, next()}, kolo::const_view(x), kolo::view(both)).wait();
    EXPECT_EQ(both, std::vector<float>(4, 8));
    // A started operation has its own copy of the name.
    kolo::Handle handle = kolo::allreduce_async(std::string(100, 'n'), kolo::view(x));
    handle.wait();
    EXPECT_EQ(x, std::vector<float>(2, 16));
  });
}

TEST(CallErrors, OfGroups) {
  kolo::run_local(2, [] {
    std::vector<float> x(6, 1), y(6, 2);
    std::vector<float> out(12);
    const Call sum = Call::allreduce(kolo::view(x), ReduceOp::sum);
    // Reading the same is no harm. An output of the wrong size fails the group there, and nowhere else.
    std::vector<float> other(kolo::rank() == 0 ? 12 : 7);
    for (int call = 0; call < 2; ++call) {
      const auto gather = [&] {
        kolo::grouped("g", {Call::allgather_into(kolo::const_view(x), kolo::view(out)),
                            Call::allgather_into(kolo::const_view(x), kolo::view(other))});
      };
      if (kolo::rank() == 0) {
        gather();
        EXPECT_EQ(other, std::vector<float>(12, 1));
      } else {
        EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, gather),
                  "the output of call 1 of \"g\" has 7 elements, but the ranks together gave 12");
      }
    }
    const auto gather = [&] {
      kolo::grouped({Call::allgather_into(kolo::const_view(x), kolo::view(out)),
                     Call::allgather_into(kolo::const_view(x), kolo::view(other))});
    };
    if (kolo::rank() == 0) {
      gather();
    } else {
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, gather),
                "the output of call 1 of this grouped call has 7 elements, but the ranks together gave "
                "12");
    }
    // One of another length makes all of them not run.
    const std::vector<float> before = y;
    const auto longer = kolo::view(y.data(), kolo::rank() == 0 ? 6 : 5);
    EXPECT_EQ(sentence_of(ErrorCode::mismatch,
                          [&] {
                            kolo::grouped("h", {sum, Call::allreduce(longer)});
                          }),
              "tensor \"h\" of allreduce: ranks disagree about shape of tensor 1: [6] on rank 0; [5] on rank 1. The "
              "operation did not run; submit the same on every rank.");
    EXPECT_EQ(x, std::vector<float>(6, 1));
    EXPECT_EQ(y, before);
  });
}

/// Of every kind that can be grouped, waited for and not, in one order with other calls without a name: none takes a
/// shorter way than the ranks agree on.
TEST_P(Calls, GroupedWithoutAName) {
  run([] {
    const int ranks = kolo::size();
    const int sum = ranks * (ranks - 1) / 2;
    for (int round = 0; round < 3; ++round) {
      std::vector<int> x{kolo::rank()}, y{kolo::rank() + 1, kolo::rank()};
      const std::vector<Call> sums{Call::allreduce(kolo::view(x)), Call::allreduce(kolo::view(y))};
      kolo::grouped(sums);
      EXPECT_EQ(x, std::vector<int>{sum});
      EXPECT_EQ(y, (std::vector<int>{sum + ranks, sum}));
      const std::vector<int> mine{kolo::rank()}, rows(static_cast<std::size_t>(kolo::rank() + 1), kolo::rank());
      std::vector<int> all(static_cast<std::size_t>(ranks), -1), of_all(static_cast<std::size_t>(sum + ranks), -1);
      const std::vector<Call> gathers{Call::allgather_into(kolo::const_view(mine), kolo::view(all)),
                                      Call::allgather_into(kolo::const_view(rows), kolo::view(of_all))};
      kolo::Handle handle = kolo::grouped_async(gathers);
      EXPECT_EQ(kolo::allreduce(1), ranks);
      handle.wait();
      std::vector<int> wanted;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(all[static_cast<std::size_t>(rank)], rank);
        wanted.insert(wanted.end(), static_cast<std::size_t>(rank + 1), rank);
      }
      EXPECT_EQ(of_all, wanted);
    }
  });
}

/// A handle that is kept makes the request take another operation.
TEST_P(Calls, APreparedOneWhoseHandleIsKept) {
  run([] {
    const std::vector<int> in(3, kolo::rank());
    std::vector<int> out(in.size() * static_cast<std::size_t>(kolo::size()), -1);
    kolo::Prepared gather = kolo::prepare("g", Call::allgather_into(kolo::const_view(in), kolo::view(out)));
    std::vector<kolo::Handle> kept;
    for (int call = 0; call < 5; ++call) {
      out.assign(out.size(), -1);
      kept.push_back(gather.start());
      kept.back().wait();
      for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<int>(i / 3));
    }
  });
}

/// Each collective as a value, by a name and without one, waited for and not.
TEST_P(Calls, AreRunAndStarted) {
  run([] {
    const int ranks = kolo::size();
    const auto expect_all = [&](const std::vector<int>& got) {
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(got[static_cast<std::size_t>(rank)], rank);
    };
    const kolo::Where named = "x", unnamed = kolo::current_context();
    for (const kolo::Where* const where : {&named, &unnamed}) {
      for (int call = 0; call < 3; ++call) {
        int one = kolo::rank();
        const Call sum = Call::allreduce(kolo::view(&one, 1));
        kolo::run(*where, sum);
        EXPECT_EQ(one, ranks * (ranks - 1) / 2);
        one = kolo::rank();
        kolo::start(*where, sum).wait();
        EXPECT_EQ(one, ranks * (ranks - 1) / 2);

        const int mine = kolo::rank();
        const Call gather = Call::allgather(kolo::const_view(&mine, 1));
        kolo::CallResult result;
        kolo::run(*where, gather, &result);
        const auto all = result.output.as<int>();
        expect_all({all.begin(), all.end()});
        kolo::Future<kolo::Tensor> future(kolo::start(*where, gather));
        const kolo::Tensor later = future.get();
        expect_all({later.as<int>().begin(), later.as<int>().end()});

        const std::vector<int> to_each(static_cast<std::size_t>(ranks), mine);
        kolo::run(*where, Call::alltoall(kolo::const_view(to_each)), &result);
        expect_all({result.output.as<int>().begin(), result.output.as<int>().end()});
        EXPECT_EQ(result.received_splits, std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 1));
        kolo::run(*where, Call::barrier());
      }
    }
  });
}

/// A call that its name, or its place in the order, meant before is quicker. It is not taken for another one.
TEST_P(Calls, ThatAreAlikeButForOneThing) {
  run([] {
    const int ranks = kolo::size();
    const int last = ranks - 1;
    float x = 0, y = 0;
    const kolo::Where named = "x", unnamed = kolo::current_context();
    const auto check = [&](const Call& call, float wanted) {
      for (const kolo::Where* const where : {&named, &unnamed}) {
        for (int again = 0; again < 2; ++again) {
          x = y = static_cast<float>(kolo::rank() + 1);
          kolo::run(*where, call);
          EXPECT_EQ(x, wanted);
          x = y = static_cast<float>(kolo::rank() + 1);
          kolo::start(*where, call).wait();
          EXPECT_EQ(x, wanted);
        }
      }
    };
    const auto view = kolo::view(&x, 1);
    const auto input = kolo::const_view(&y, 1);
    const float sum = static_cast<float>(ranks * (ranks + 1)) / 2;
    const auto mine = [](float of_root, int root) {
      return kolo::rank() == root ? of_root : static_cast<float>(kolo::rank() + 1);
    };
    check(Call::allreduce(view), sum);
    check(Call::allreduce(view, ReduceOp::max), static_cast<float>(ranks));
    check(Call::allreduce(view, kolo::AllreduceOptions{}.with_prescale(2)), 2 * sum);
    check(Call::allreduce(view, kolo::AllreduceOptions{}.with_postscale(4)), 4 * sum);
    check(Call::allreduce(view, kolo::AllreduceOptions{}.with_priority(3)), sum);
    check(Call::allreduce_into(input, view), sum);
    check(Call::reduce(view, 0), mine(sum, 0));
    check(Call::reduce(view, last), mine(sum, last));
    check(Call::reduce_into(input, view, last), mine(sum, last));
    check(Call::broadcast(view, 0), 1);
    check(Call::broadcast(view, last), static_cast<float>(ranks));
    check(Call::broadcast_into(input, view, last), static_cast<float>(ranks));
    check(Call::allreduce(view), sum);
  });
}

TEST_P(Calls, BarriersArePrepared) {
  run([] {
    kolo::Prepared barrier = kolo::prepare("b", Call::barrier());
    for (int call = 0; call < 3; ++call) barrier.start().wait();
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), kolo::size());
  });
}

TEST_P(Calls, AGroupedAllreduceNeedsNoName) {
  run([] {
    std::vector<float> x(3, 1), y(5, 2);
    const std::vector<kolo::NamedView> members{{"x", kolo::view(x)}, {"y", kolo::view(y)}};
    const auto ranks = static_cast<float>(kolo::size());
    kolo::run(kolo::world(), Call::grouped_allreduce(members));
    kolo::start(kolo::world(), Call::grouped_allreduce(members)).wait();
    EXPECT_EQ(x, std::vector<float>(3, ranks * ranks));
    EXPECT_EQ(y, std::vector<float>(5, 2 * ranks * ranks));
  });
}

TEST_P(Calls, GatherEqualRows) {
  run([] {
    for (const std::size_t rows : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
      std::vector<int> in(rows, kolo::rank());
      std::vector<int> wanted;
      for (int r = 0; r < kolo::size(); ++r) wanted.insert(wanted.end(), rows, r);
      std::vector<int> out(wanted.size(), -1);
      std::vector<int> again(wanted.size(), -1);
      const Call call = Call::allgather_equal_into(kolo::const_view(in), kolo::view(out));
      kolo::run(kolo::world(), call);
      EXPECT_EQ(out, wanted);
      kolo::grouped("both", {call, Call::allgather_equal_into(kolo::const_view(in), kolo::view(again))});
      EXPECT_EQ(again, wanted);
    }
    std::vector<int> whole(static_cast<std::size_t>(kolo::size()), -1);
    int& mine = whole[static_cast<std::size_t>(kolo::rank())];
    mine = kolo::rank();
    kolo::run({kolo::world(), "in place"}, Call::allgather_equal_into(kolo::const_view(&mine, 1), kolo::view(whole)));
    for (int r = 0; r < kolo::size(); ++r) EXPECT_EQ(whole[static_cast<std::size_t>(r)], r);
  });
}

TEST(CallErrors, OfPreparedRequests) {
  kolo::run_local(2, [] {
    std::vector<float> x(6, 1), out(kolo::rank() == 0 ? 12 : 5);
    kolo::Prepared held = kolo::prepare("held", Call::broadcast(kolo::view(x), 0));
    EXPECT_EQ(sentence_of(ErrorCode::duplicate_name, [&] { (void)kolo::reduce_async("held", kolo::view(x), 0); }),
              "the name \"held\" belongs to a prepared request: start that one, or use another name");
    // An output of the wrong size fails there alone, every time.
    kolo::Prepared gather = kolo::prepare("g", Call::allgather_into(kolo::const_view(x), kolo::view(out)));
    for (int call = 0; call < 3; ++call) {
      kolo::Handle handle = gather.start();
      if (kolo::rank() == 0) {
        handle.wait();
        continue;
      }
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { handle.wait(); }),
                "the output of allgather of \"g\" has 5 elements, but the ranks together gave 12");
    }
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
  });
}

TEST(Scalars, AreSummedWithoutAnOperationAndWrap) {
  kolo::run_local(2, [] {
    EXPECT_EQ(kolo::allreduce(3), 6);
    EXPECT_EQ(kolo::allreduce(kolo::world(), 0.5), 1.0);
    EXPECT_EQ(kolo::allreduce(std::numeric_limits<std::int64_t>::max()), -2);
    EXPECT_EQ(kolo::allreduce(std::numeric_limits<std::int32_t>::min()), 0);
    EXPECT_EQ(kolo::allreduce(std::uint8_t{200}), 144);
    EXPECT_EQ(kolo::allreduce(std::int8_t{100}, ReduceOp::product), 16);
  });
}

}  // namespace
