// SPDX-License-Identifier: Apache-2.0
//
// GradientArena in worlds of threads: the same results as elsewhere whatever part of the ranks uses one, and memory
// that stays its owner's through faults and beyond the context.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>
#include <kolo/training.hpp>

#include "errors.hpp"
#include "tests/support/gate.hpp"
#include "world.hpp"

namespace {

using kolo::DType;
using kolo::ErrorCode;
using kolo::GradientArena;
using kolo::ReduceOp;
using kolo::Shape;
using kolo::TensorView;
using kolo::testing::has;
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::sentence_of;
using kolo::testing::worlds;

Shape vector_of(std::int64_t elements) { return Shape{elements}; }

float term(std::size_t i, int rank, int step) {
  return static_cast<float>(i % 97) + static_cast<float>((step % 7 + 1) * (rank + 1));
}

std::size_t elements_of(const TensorView& view) { return static_cast<std::size_t>(view.elements()); }

void fill(const TensorView& view, int rank, int step) {
  auto* data = static_cast<float*>(view.data());
  for (std::size_t i = 0, count = elements_of(view); i < count; ++i) data[i] = term(i, rank, step);
}

void check(const TensorView& view, int size, int step, const std::string& what) {
  const auto* data = static_cast<const float*>(view.data());
  for (std::size_t i = 0, count = elements_of(view); i < count; ++i) {
    float wanted = 0;
    for (int rank = 0; rank < size; ++rank) wanted += term(i, rank, step);
    if (data[i] == wanted) continue;  // an assertion takes a while, under a sanitizer above all
    ASSERT_EQ(data[i], wanted) << what << "[" << i << "] in step " << step;
  }
}

class Arena : public InWorlds {
 protected:
  Arena() : InWorlds({{"KOLO_SLOT_BYTES", "16K"}}) {}
};

TEST_P(Arena, ReducesInPlaceWhatLiesInIt) {
  run([&] {
    GradientArena arena(1 << 20);
    const TensorView x = arena.allocate(DType::float32, vector_of(50'001));
    const TensorView y = arena.allocate(DType::float32, vector_of(20'000));
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(y.data()) % GradientArena::kAlignment, 0U);
    const std::uint64_t before = kolo::metrics().bytes_in_place;
    for (int step = 0; step < 4; ++step) {
      fill(x, kolo::rank(), step);
      fill(y, kolo::rank(), step + 1);
      kolo::Handle first = kolo::allreduce_async("x", x);
      kolo::allreduce(y);
      first.wait();
      check(x, kolo::size(), step, "x");
      check(y, kolo::size(), step + 1, "y");
    }
    const std::uint64_t in_place = kolo::metrics().bytes_in_place - before;
    // All but chunks so small that a copy is cheaper.
    if (kolo::local_size() > 1) {
      EXPECT_GT(in_place, static_cast<std::uint64_t>(4 * x.bytes()));
    }
    EXPECT_LE(in_place, static_cast<std::uint64_t>(4 * (x.bytes() + y.bytes())));
  });
}

/// Every rank has other tensors in the arena, at other places; some ranks none; groups of many small ones; parts of
/// tensors at odd addresses.
TEST_P(Arena, EachRankForItself) {
  run([&] {
    constexpr std::size_t kTensors = 120;
    const int rank = kolo::rank();
    GradientArena arena(4 << 20);
    std::vector<std::vector<float>> elsewhere(kTensors);
    std::vector<kolo::NamedView> members;
    for (std::size_t k = 0; k < kTensors; ++k) {
      const std::size_t i = rank % 2 == 0 ? k : kTensors - 1 - k;  // allocated in another order
      const auto elements = static_cast<std::int64_t>(i % 10 == 0 ? 9'000 + i : 1 + i % 50);
      const bool here = rank % 3 != 2 && (i + static_cast<std::size_t>(rank)) % 4 != 0;
      if (here) {
        const TensorView whole = arena.allocate(DType::float32, vector_of(elements + rank));
        members.push_back(
            {"t" + std::to_string(i), {static_cast<float*>(whole.data()) + rank, DType::float32, vector_of(elements)}});
      } else {
        elsewhere[i].resize(static_cast<std::size_t>(elements));
        members.push_back({"t" + std::to_string(i), kolo::view(elsewhere[i])});
      }
    }
    const auto number = [](const kolo::NamedView& member) { return std::stoi(member.name.substr(1)); };
    std::sort(members.begin(), members.end(), [&](const auto& a, const auto& b) { return number(a) < number(b); });
    for (int step = 0; step < 3; ++step) {
      for (const kolo::NamedView& member : members) fill(member.view, rank, step);
      kolo::grouped_allreduce("all", members);
      for (const kolo::NamedView& member : members) check(member.view, kolo::size(), step, member.name);
      std::vector<kolo::Handle> handles;
      for (const kolo::NamedView& member : members) fill(member.view, rank, step);
      for (const kolo::NamedView& member : members) handles.push_back(kolo::allreduce_async(member.name, member.view));
      kolo::wait_all(handles);
      for (const kolo::NamedView& member : members) check(member.view, kolo::size(), step, member.name);
      kolo::end_step();
    }
  });
}

TEST_P(Arena, OtherCollectivesTakeItAsAnyMemory) {
  run([&] {
    GradientArena arena(1 << 20);
    const TensorView x = arena.allocate(DType::float32, vector_of(10'000));
    const TensorView y = arena.allocate(DType::float32, vector_of(10'000));
    for (int root = 0; root < kolo::size(); ++root) {
      fill(x, kolo::rank(), 0);
      kolo::broadcast("b", x, root);
      EXPECT_EQ(static_cast<const float*>(x.data())[5], term(5, root, 0));
    }
    fill(x, kolo::rank(), 1);
    kolo::allreduce_into_async("into", x, y).wait();
    check(y, kolo::size(), 1, "y");
    EXPECT_EQ(static_cast<const float*>(x.data())[5], term(5, kolo::rank(), 1));
    const kolo::Tensor all = kolo::allgather("g", x);
    EXPECT_EQ(all.as<float>()[10'000U * static_cast<std::size_t>(kolo::size() - 1) + 5], term(5, kolo::size() - 1, 1));
  });
}

TEST_P(Arena, SeveralComeAndGo) {
  run([&] {
    GradientArena first(100'000, "first");
    const TensorView x = first.allocate(DType::float32, vector_of(20'000));
    for (int round = 0; round < 3; ++round) {
      GradientArena second(200'000, "second");
      const TensorView y = second.allocate(DType::float32, vector_of(20'000 + round));
      // The first rank's arena goes before the others'.
      std::optional<GradientArena> third(std::in_place, 100'000, "third");
      const TensorView z = third->allocate(DType::float32, vector_of(20'000));
      if (kolo::rank() == 0) third.reset();
      std::vector<float> plain(20'000);
      const TensorView w = third ? z : kolo::view(plain);
      for (const TensorView& view : {x, y, w}) fill(view, kolo::rank(), round);
      std::vector<kolo::Handle> handles;
      handles.push_back(kolo::allreduce_async("x", x));
      handles.push_back(kolo::allreduce_async("y" + std::to_string(round), y));
      handles.push_back(kolo::allreduce_async("w", w));
      kolo::wait_all(handles);
      for (const TensorView& view : {x, y, w}) check(view, kolo::size(), round, "a tensor");
    }
  });
}

TEST_P(Arena, SixteenBitAveragesAreTheSameBitsAsElsewhere) {
  run([&] {
    GradientArena arena(1 << 20);
    const TensorView x = arena.allocate(DType::bfloat16, vector_of(30'011));
    std::vector<kolo::BFloat16> y(30'011);
    auto* bits = static_cast<kolo::BFloat16*>(x.data());
    for (std::size_t i = 0; i < y.size(); ++i)
      bits[i].bits = y[i].bits =
          static_cast<std::uint16_t>(0x3F00 + (i * 31 + static_cast<std::size_t>(kolo::rank()) * 7) % 900);
    const auto average = kolo::AllreduceOptions{}.with_op(ReduceOp::average).with_postscale(0.3);
    kolo::allreduce("x", x, average);
    kolo::allreduce("y", kolo::view(y), average);
    EXPECT_EQ(std::memcmp(x.data(), y.data(), 2 * y.size()), 0);
  });
}

TEST_P(Arena, ParametersGetTheirGradientsThere) {
  run([&] {
    std::vector<float> w(30'000, 1.0F);
    std::vector<float> b(17, 2.0F);
    std::vector<float> running_mean(5);
    std::vector<float> gradient(w.size() + b.size());
    std::vector<kolo::Parameter> parameters{{"w", kolo::view(w), kolo::view(gradient.data(), w.size())},
                                            {"mean", kolo::view(running_mean)},
                                            {"b", kolo::view(b), kolo::view(gradient.data() + w.size(), b.size())}};
    GradientArena arena(parameters);
    EXPECT_FALSE(parameters[1].gradient.has_value());
    for (const std::size_t i : {0U, 2U}) {
      EXPECT_TRUE(arena.contains(parameters[i].gradient->data()));
      EXPECT_EQ(parameters[i].gradient->shape(), parameters[i].value.shape());
    }
    kolo::Sgd sgd(parameters, kolo::SgdOptions{1.0});
    kolo::DistributedOptimizer optimizer(sgd, parameters);
    optimizer.zero_grad();
    auto* dw = static_cast<float*>(parameters[0].gradient->data());
    std::fill(dw, dw + w.size(), static_cast<float>(kolo::rank()));
    optimizer.step();
    EXPECT_EQ(w, std::vector<float>(w.size(), 1.0F - static_cast<float>(kolo::size() - 1) / 2));
    EXPECT_EQ(b, std::vector<float>(b.size(), 2.0F));
    if (kolo::local_size() > 1) {
      EXPECT_GT(kolo::metrics().bytes_in_place, 0U);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Arena, worlds({{1, 0}, {2, 0}, {3, 0}, {8, 0}, {2, 1}, {4, 2}, {5, 2}, {7, 3}}),
                         name_of);

TEST(ArenaErrors, SizesMustAgree) {
  kolo::run_local(3, [] {
    const std::string sentence =
        sentence_of(ErrorCode::mismatch, [] { GradientArena arena(kolo::rank() == 2 ? 8192 : 4096); });
    EXPECT_TRUE(has(sentence, {"rank 0 asks for 4096 bytes, rank 2 for 8192"})) << sentence;
    GradientArena arena(4096);  // the job goes on
    EXPECT_EQ(arena.capacity(), 4096U);
  });
}

TEST(ArenaErrors, WithoutMemoryOnOneRankNoneHasOneAndTheJobGoesOn) {
  kolo::run_local(2, [] {
    const std::string sentence =
        sentence_of(ErrorCode::out_of_memory, [] { GradientArena arena(std::size_t{1} << 47); });  // all addresses
    EXPECT_TRUE(has(sentence, {"rank 0 cannot share memory with its node: mapping 140737488355328 bytes: "}))
        << sentence;
    GradientArena arena(4096);
    EXPECT_EQ(arena.capacity(), 4096U);
  });
}

/// Rank 0 says what it says when all numbers are taken: 65,535 real arenas would take too long.
TEST(ArenaErrors, NumbersEnd) {
  kolo::run_local(2, [] {
    if (kolo::rank() == 0) {
      std::vector<std::uint64_t> no_number{0, 4096, 0, 0, 65535};
      for (std::uint64_t number = 1; number <= 65535; ++number) no_number.push_back(number);
      (void)kolo::allgather("GradientArena(full)", kolo::const_view(no_number));
    } else {
      EXPECT_EQ(sentence_of(ErrorCode::unsupported, [] { GradientArena arena(4096, "full"); }),
                "GradientArena(full): 65535 arenas exist already, which is the most that there can be");
    }
    GradientArena arena(4096);  // the job goes on
    EXPECT_EQ(arena.capacity(), 4096U);
  });
}

/// The own arena of each rank's group, one that both of its groups share no rank of, and the world's: reduced in place
/// where all ranks of the collective are members, and as any memory elsewhere.
TEST_P(Arena, OfGroups) {
  run([] {
    constexpr int kSteps = 3;
    const int half = (kolo::size() + 1) / 2;
    const kolo::Group world = kolo::world();
    const kolo::Group pair = world.split(kolo::rank() % half, -kolo::rank());
    const kolo::Group part = world.split(kolo::rank() / half);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::unique_ptr<GradientArena>> arenas;
      const std::vector<kolo::Group> groups{pair, world, part};
      for (const kolo::Group& group : groups) {
        // The ranks of each group know its size; those of others have others.
        const std::size_t bytes = std::size_t{1 + static_cast<std::size_t>(kolo::size(group))} << 17;
        arenas.push_back(std::make_unique<GradientArena>(group, bytes, "round " + std::to_string(round)));
      }
      std::vector<TensorView> tensors;
      for (const auto& arena : arenas) tensors.push_back(arena->allocate(DType::float32, vector_of(20'001)));
      for (int step = 0; step < kSteps; ++step) {
        for (const kolo::Group& group : groups) {
          for (std::size_t i = 0; i < tensors.size(); ++i) {
            fill(tensors[i], kolo::rank(group), step);
            const std::uint64_t before = kolo::metrics().bytes_in_place;
            kolo::allreduce({group, "x" + std::to_string(i)}, tensors[i], ReduceOp::sum);
            check(tensors[i], kolo::size(group), step, "arena " + std::to_string(i));
            const std::vector<int> owners = groups[i].members();
            const std::vector<int> members = group.members();
            const bool are_members = std::all_of(members.begin(), members.end(), [&](int rank) {
              return std::find(owners.begin(), owners.end(), rank) != owners.end();
            });
            if (kolo::size(group) > 1) {
              EXPECT_EQ(kolo::metrics().bytes_in_place > before, are_members)
                  << "arena " << i << " in a group of " << members.size();
            }
          }
        }
      }
      kolo::barrier();
    }
  });
}

TEST(ArenaErrors, OfAGroupNameRanksOfTheWorld) {
  kolo::run_local(3, [] {
    if (kolo::rank() == 0) return;
    const kolo::Group pair = kolo::Group::of({2, 1});
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { GradientArena arena(pair, kolo::rank() == 2 ? 8192 : 4096); }),
              "GradientArena(gradients): ranks disagree about its size: rank 2 asks for 8192 bytes, rank 1 for 4096");
    GradientArena arena(pair, 4096);
    EXPECT_EQ(arena.capacity(), 4096U);
  });
}

/// Threads of a rank make arenas with different ranks at once: a number that one has taken is not another's.
TEST(ArenaErrors, SeveralAtOnceHaveNumbersOfTheirOwn) {
  kolo::run_local(3, [] {
    kolo::Context& context = kolo::current_context();
    const int next = (kolo::rank() + 1) % 3;
    const int last = (kolo::rank() + 2) % 3;
    const std::pair<int, int> up = std::minmax(kolo::rank(), next);
    const std::pair<int, int> down = std::minmax(kolo::rank(), last);
    std::vector<std::thread> threads;
    for (const auto& [one, other] : {up, down}) {
      threads.emplace_back([&context, one = one, other = other] {
        const kolo::ContextGuard guard(context);
        const kolo::Group pair = kolo::Group::of({one, other});
        for (int round = 0; round < 20; ++round) {
          GradientArena arena(pair, 4096);
          const TensorView tensor = arena.allocate(DType::float32, vector_of(100));
          fill(tensor, kolo::rank(pair), round);
          kolo::allreduce({pair, "x"}, tensor, ReduceOp::sum);
          check(tensor, 2, round, "x");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(ArenaErrors, RoomEnds) {
  kolo::Context context;
  GradientArena arena(context, 4096, "small");
  EXPECT_EQ(GradientArena::room_for(DType::float64, Shape{9}), 128U);
  const TensorView x = arena.allocate(DType::float64, Shape{9});
  EXPECT_TRUE(arena.contains(x.data()));
  EXPECT_EQ(arena.allocated(), 128U);
  const std::string sentence =
      sentence_of(ErrorCode::invalid_argument, [&] { (void)arena.allocate(DType::uint8, Shape{4000}); });
  EXPECT_TRUE(has(sentence, {"GradientArena(small): no room for uint8 [4000]"})) << sentence;
  const TensorView none = arena.allocate(DType::float32, Shape{0});
  EXPECT_EQ(none.elements(), 0);
  (void)arena.allocate(DType::uint8, Shape{4096 - 128});
}

TEST(ArenaLife, OutlivesItsContext) {
  std::vector<std::unique_ptr<GradientArena>> arenas(3);
  std::vector<float*> data(3);
  kolo::run_local(3, [&] {
    const auto rank = static_cast<std::size_t>(kolo::rank());
    arenas[rank] = std::make_unique<GradientArena>(1 << 20);
    const TensorView x = arenas[rank]->allocate(DType::float32, vector_of(100'000));
    fill(x, kolo::rank(), 0);
    kolo::allreduce("x", x);
    data[rank] = static_cast<float*>(x.data());
  });
  for (float* one : data) check({one, DType::float32, vector_of(100'000)}, 3, 0, "x");
  for (float* one : data) one[7] = 1;
}

/// A rank throws while the others' tensors are in flight: they fail, and from then on are their owners' alone; other
/// tensors of the arena keep what they had.
TEST(ArenaLife, AFaultMakesItPrivate) {
  constexpr int kRanks = 4;
  kolo::testing::Gate failed;
  const auto body = [&] {
    GradientArena arena(8 << 20);
    const TensorView in_flight = arena.allocate(DType::float32, vector_of(1'000'000));
    const TensorView bystander = arena.allocate(DType::float32, vector_of(50'000));
    fill(bystander, kolo::rank(), 3);
    for (int step = 0;; ++step) {
      if (kolo::rank() == 3 && step == 5) {
        failed.wait_for(1);  // not before the others' tensors have been abandoned
      }
      fill(in_flight, kolo::rank(), step);
      try {
        kolo::AllreduceOptions options;
        // The last rank never comes to step 5.
        if (step == 5) options.timeout = std::chrono::milliseconds(200);
        if (kolo::rank() == 3 && step == 5) throw std::runtime_error("enough");
        kolo::allreduce("x", in_flight, options);
      } catch (const kolo::Error&) {
        failed.come();
        break;
      }
      check(in_flight, kolo::size(), step, "x");
    }
    auto* data = static_cast<float*>(in_flight.data());
    std::fill(data, data + in_flight.elements(), static_cast<float>(kolo::rank()));
    failed.wait_for(kRanks - 1);
    EXPECT_EQ(std::count(data, data + in_flight.elements(), static_cast<float>(kolo::rank())), in_flight.elements());
    const auto* kept = static_cast<const float*>(bystander.data());
    for (std::size_t i = 0; i < elements_of(bystander); ++i) ASSERT_EQ(kept[i], term(i, kolo::rank(), 3));
  };
  EXPECT_THROW(kolo::run_local(kRanks, body), kolo::Error);
  EXPECT_EQ(failed.have_come(), kRanks - 1);
}

/// An exception destroys the arena while an operation on it is open: no rank reads memory that is gone.
TEST(ArenaLife, AnExceptionMayDestroyItInFlight) {
  const auto body = [] {
    GradientArena arena(4 << 20);
    const TensorView x = arena.allocate(DType::float32, vector_of(500'000));
    kolo::Handle handle = kolo::allreduce_async("x", x);
    if (kolo::rank() == 1) throw std::runtime_error("enough");
    try {
      handle.wait();
    } catch (const kolo::Error&) {  // or it was complete before the other rank left
    }
  };
  EXPECT_THROW(kolo::run_local(2, body), kolo::Error);
}

}  // namespace
