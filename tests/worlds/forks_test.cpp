// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a rank's objects in a process that it forks.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <kolo/call.hpp>
#include <kolo/collectives.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>
#include <kolo/join.hpp>
#include <kolo/point_to_point.hpp>

#include "children.hpp"
#include "errors.hpp"

#ifdef __SANITIZE_ADDRESS__
/// Asked as the process ends. A child does not have the stacks of its parent's threads, so what these own looks lost.
extern "C" int __lsan_is_turned_off() { return kolo::testing::is_child ? 1 : 0; }
#endif

namespace {

using kolo::ErrorCode;
using kolo::testing::sentence_of;
using kolo::testing::status_of_child;

constexpr const char* kInherited =
    "this process is a fork of a rank, and no rank itself: it cannot use its parent's context, nor join the job";

/// Rank 0's, with operations that wait for rank 1.
struct Everything {
  std::vector<float> x = std::vector<float>(8, 1);
  std::vector<float> y = std::vector<float>(8, 1);
  std::vector<float> z = std::vector<float>(8, 1);
  kolo::GradientArena arena{4096};
  kolo::Group group = kolo::Group::of({0, 1});
  kolo::Prepared prepared = kolo::prepare("prepared", kolo::Call::allreduce(kolo::view(x)));
  kolo::Handle started = prepared.start();
  kolo::Handle sum = kolo::allreduce_async({group, "sum"}, kolo::view(y));
  kolo::Future<kolo::Tensor> rows = kolo::allgather_async("rows", kolo::view(z));
  kolo::Future<kolo::Received> message;

  Everything() {
    if (kolo::rank() == 0) message = kolo::recv_async(kolo::view(z), 1, 7);
  }
};

std::optional<Everything> of_rank_0;

/// Rank 0 forks while its operations are open; rank 1 makes its calls afterwards.
int status_of_child_of_rank_0(const std::function<void(Everything&)>& body) {
  int status = -1;
  kolo::run_local(2, [&] {
    if (kolo::rank() == 0) {
      std::vector<float> done{1};
      of_rank_0.emplace();
      status = status_of_child([&] { body(*of_rank_0); });
      kolo::barrier_async("forked").wait();
      of_rank_0->started.wait();
      of_rank_0->sum.wait();
      EXPECT_EQ(of_rank_0->y[7], 2);
      EXPECT_EQ(of_rank_0->rows.get().shape(), kolo::Shape{16});
      EXPECT_EQ(of_rank_0->message.get().tag, 7);
      of_rank_0.reset();
    } else {
      std::vector<float> x(8, 1);
      std::vector<float> y(8, 1);
      const kolo::GradientArena arena(4096);
      const kolo::Group group = kolo::Group::of({0, 1});
      kolo::barrier_async("forked").wait();
      kolo::allreduce("prepared", kolo::view(x));
      kolo::allreduce({group, "sum"}, kolo::view(y));
      static_cast<void>(kolo::allgather("rows", kolo::view(y)));
      kolo::send(kolo::view(y), 0, 7);
    }
    kolo::barrier();
  });
  return status;
}

TEST(Forks, AChildThatOnlyExitsDestroysNothing) {
  EXPECT_EQ(status_of_child_of_rank_0([](Everything&) {}), 0);
}

TEST(Forks, AChildMayDestroyWhatItInherits) {
  EXPECT_EQ(status_of_child_of_rank_0([](Everything& all) {
              all.sum = kolo::Handle();
              all.started.detach();
              all.prepared = kolo::Prepared();
              { const kolo::GradientArena arena = std::move(all.arena); }
              try {
                const kolo::Handle ended_by_an_exception = std::move(all.rows);
                throw 1;
              } catch (int) {
              }
            }),
            0);
}

TEST(Forks, EveryCallOfAChildIsRefused) {
  const auto refuses = [](const auto& call) { EXPECT_EQ(sentence_of(ErrorCode::unsupported, call), kInherited); };
  EXPECT_EQ(status_of_child_of_rank_0([&](Everything& all) {
              refuses([&] { static_cast<void>(all.sum.done()); });
              refuses([&] { static_cast<void>(all.sum.status()); });
              refuses([&] { all.sum.wait(); });
              refuses([&] { static_cast<void>(all.sum.wait_for(std::chrono::seconds(0))); });
              refuses([&] { static_cast<void>(all.sum.late_ranks(std::chrono::seconds(0))); });
              refuses([&] { all.sum.on_done([](const kolo::Status&) {}); });
              refuses([&] { kolo::wait_all(kolo::Span<const kolo::Handle>(&all.sum, 1)); });
              refuses([&] { static_cast<void>(all.rows.get()); });
              refuses([&] { static_cast<void>(all.message.get()); });
              refuses([&] { static_cast<void>(all.message.cancel()); });
              refuses([&] { static_cast<void>(all.prepared.start()); });
              refuses([&] { static_cast<void>(all.arena.allocate(kolo::DType::float32, {1})); });
              refuses([&] { static_cast<void>(all.arena.contains(nullptr)); });
              refuses([&] { static_cast<void>(all.arena.capacity()); });
              refuses([&] { static_cast<void>(all.arena.allocated()); });
              refuses([&] { static_cast<void>(all.arena.device()); });
              refuses([&] { static_cast<void>(kolo::rank(all.group)); });
              refuses([&] { static_cast<void>(kolo::size(all.group)); });
              refuses([&] { static_cast<void>(all.group.split(0)); });
              refuses([&] { static_cast<void>(kolo::Group::of({0})); });
              refuses([&] { static_cast<void>(kolo::rank()); });
              refuses([&] {
                static_cast<void>(kolo::world());
                kolo::barrier(kolo::world());
              });
              refuses([&] { kolo::barrier(); });
              refuses([&] { kolo::allreduce("new", kolo::view(all.x)); });
              refuses([&] { kolo::send(kolo::view(all.x), 1); });
              refuses([&] { static_cast<void>(kolo::join()); });
              refuses([&] { static_cast<void>(kolo::metrics()); });
              refuses([&] { kolo::abandon("a child"); });
              refuses([&] { kolo::current_context().shutdown(); });
            }),
            0);
}

/// As launchers in notebooks do.
TEST(Forks, AProcessThatHasLeftItsWorldHasChildrenThatAreRanks) {
  const auto be_a_rank = [] {
    kolo::init();
    std::vector<float> x{3};
    kolo::allreduce("x", kolo::view(x));
    EXPECT_EQ(x[0], 3);
    kolo::shutdown();
  };
  be_a_rank();
  kolo::Context kept = kolo::Context::alone();
  kept.shutdown();
  EXPECT_EQ(status_of_child([&] {
              be_a_rank();
              EXPECT_EQ(sentence_of(ErrorCode::unsupported, [&] { static_cast<void>(kept.rank()); }), kInherited);
              EXPECT_EQ(status_of_child(be_a_rank), 0);
              kolo::init();  // closed at exit
            }),
            0);
  be_a_rank();
}

TEST(Forks, AChildOfARankIsNone) {
  kolo::init();
  const auto refuses = [] {
    EXPECT_EQ(sentence_of(ErrorCode::unsupported, [] { const kolo::Context context; }), kInherited);
    EXPECT_EQ(sentence_of(ErrorCode::unsupported, [] { kolo::init(); }), kInherited);
    EXPECT_EQ(sentence_of(ErrorCode::unsupported, [] { kolo::shutdown(); }), kInherited);
  };
  EXPECT_EQ(status_of_child([&] {
              refuses();
              EXPECT_EQ(status_of_child(refuses), 0);
            }),
            0);
  kolo::shutdown();
}

}  // namespace
