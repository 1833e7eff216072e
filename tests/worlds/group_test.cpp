// SPDX-License-Identifier: Apache-2.0
//
// Groups: what a context stands for, and what becomes of a group whose context moves or goes.
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/kolo.hpp>

#include "errors.hpp"

namespace {

using kolo::ErrorCode;
using kolo::Group;
using kolo::testing::sentence_of;

static_assert(std::is_convertible_v<kolo::Context&, const Group&>);
static_assert(std::is_convertible_v<const kolo::Context&, Group>);
static_assert(!std::is_convertible_v<kolo::Context, Group>, "the context would go at the end of the line");
static_assert(!std::is_default_constructible_v<Group> && std::is_nothrow_copy_constructible_v<Group>);

const std::string kGone =
    "the context of this group is gone: it was destroyed, or shut down by kolo::shutdown; take a group of the context "
    "that is there now";

TEST(Groups, AContextStandsForItsWorld) {
  kolo::run_local(3, [] {
    const Group all = kolo::world();
    EXPECT_EQ(kolo::rank(all), kolo::rank());
    EXPECT_EQ(kolo::size(all), 3);
    kolo::Context& context = kolo::current_context();
    EXPECT_EQ(kolo::rank(context), kolo::rank());
    EXPECT_EQ(kolo::allreduce(all, kolo::rank(), kolo::ReduceOp::sum), 3);
    EXPECT_EQ(kolo::allreduce(context, kolo::rank(), kolo::ReduceOp::sum), 3);
    EXPECT_EQ(kolo::broadcast_object(all, kolo::rank() + 5, 2), 7);
    EXPECT_EQ(kolo::broadcast_object(context, kolo::rank() + 5, 2), 7);
    EXPECT_EQ(kolo::allgather_object(all, kolo::rank()), (std::vector<int>{0, 1, 2}));
    std::vector<float> x{1};
    const Group copy = all;  // the same group: names and numbers of unnamed calls are shared
    kolo::Prepared prepared = kolo::prepare({copy, "x"}, kolo::Call::allreduce(kolo::view(x)));
    EXPECT_EQ(sentence_of(ErrorCode::duplicate_name,
                          [&] {
                            (void)kolo::allreduce_async({all, "x"}, kolo::view(x));
                          }),
              "the name \"x\" belongs to a prepared request: start that one, or use another name");
    prepared.start().wait();
    EXPECT_EQ(x[0], 3.0F);
  });
}

TEST(Groups, FollowAContextThatIsMoved) {
  kolo::Context context;
  const Group group = context;
  kolo::Context other = std::move(context);
  kolo::barrier(group);
  EXPECT_EQ(kolo::size(group), 1);
  EXPECT_EQ(sentence_of(ErrorCode::not_initialized, [&] { (void)kolo::rank(context); }), "this context was moved from");
}

TEST(Groups, OutliveTheirContextAndSaySo) {
  std::optional<Group> group;
  std::vector<float> x{1};
  {
    kolo::Context context;
    group = context;
    kolo::allreduce(*group, kolo::view(x));
    context.shutdown();
    EXPECT_EQ(sentence_of(ErrorCode::shut_down, [&] { kolo::barrier(*group); }), "this context was shut down");
  }
  const auto gone = [&](const auto& call) { EXPECT_EQ(sentence_of(ErrorCode::not_initialized, call), kGone); };
  gone([&] { (void)kolo::rank(*group); });
  gone([&] { (void)kolo::size(*group); });
  gone([&] { kolo::barrier(*group); });
  gone([&] { kolo::allreduce(*group, kolo::view(x)); });
  gone([&] { kolo::allreduce({*group, "x"}, kolo::view(x)); });
  gone([&] { (void)kolo::allreduce_async({*group, "x"}, kolo::view(x)); });
  gone([&] { kolo::reduce({*group, "x"}, kolo::view(x), 0); });
  gone([&] { (void)kolo::gather({*group, "x"}, kolo::view(x), 0); });
  gone([&] { kolo::scatter_into({*group, "x"}, std::nullopt, kolo::view(x), 0); });
  gone([&] { (void)kolo::prepare({*group, "x"}, kolo::Call::allreduce(kolo::view(x))); });
  gone([&] { (void)kolo::broadcast_object(*group, 1); });
  gone([&] { (void)kolo::metrics(*group); });
  gone([&] { kolo::end_step(*group); });
  gone([&] { const kolo::GradientArena arena(*group, 100); });
  gone([&] { (void)kolo::DistributedSampler(*group, 10); });
  const Group copy = *group;
  gone([&] { kolo::barrier(copy); });
}

/// A model of one parameter.
struct Model {
  std::vector<float> value = std::vector<float>(2), gradient = std::vector<float>(2, 1.0F);
  std::vector<kolo::Parameter> parameters{{"w", kolo::view(value), kolo::view(gradient)}};
  kolo::Sgd sgd{parameters, {1.0}};
};

TEST(Groups, AnOptimizerFollowsAContextThatIsMoved) {
  Model model;
  std::optional<kolo::Context> first(std::in_place);
  kolo::DistributedOptimizer optimizer(*first, model.sgd, model.parameters);
  kolo::Context second = std::move(*first);
  first.reset();
  optimizer.step();
  EXPECT_EQ(model.value[0], -1.0F);
}

TEST(Groups, AnOptimizerOfAContextThatIsGoneSaysSo) {
  Model model;
  kolo::init();
  kolo::DistributedOptimizer optimizer(model.sgd, model.parameters);
  optimizer.step();
  kolo::shutdown();
  kolo::init();
  EXPECT_EQ(sentence_of(ErrorCode::shut_down, [&] { optimizer.step(); }), "this context was shut down");
  EXPECT_EQ(model.value[0], -1.0F);
  kolo::shutdown();
}

}  // namespace
