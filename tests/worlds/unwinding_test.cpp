// SPDX-License-Identifier: Apache-2.0
//
// Handles that an exception destroys while their operations are open. Their memory is poisoned afterwards, and must
// stay as it is, whatever the other ranks submit late.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <kolo/kolo.hpp>

#include "tests/optimizer/errors.hpp"
#include "world.hpp"

namespace {

using kolo::test::error_of;
using kolo::testing::run_in;

void run_handles(int ranks, const std::function<void()>& body) { run_in(ranks, body); }

void await_count(const std::atomic<int>& count, int wanted) {
  while (count.load() < wanted) std::this_thread::yield();
}

TEST(UnwindingHandle, EndsItsOperation) {
  const std::string told =
      "user_exception: rank 0 left the job because of an exception: it destroyed the handle of an open operation "
      "(allreduce of float64 "
      "[100], op sum). The contents of the buffers in flight are undefined.";
  std::atomic<int> gone{0}, followed{0};
  run_handles(2, [&] {
    std::vector<double> x(100, 1.0);
    if (kolo::rank() == 1) {
      await_count(gone, 1);
      EXPECT_EQ(error_of([&] { kolo::allreduce_async("x", kolo::view(x)).wait(); }), told);
      followed.fetch_add(1);
      return;
    }
    EXPECT_THROW(
        {
          std::vector<kolo::Handle> handles;
          handles.push_back(kolo::allreduce_async("x", kolo::view(x)));
          throw std::out_of_range("no");
        },
        std::out_of_range);
    x.assign(x.size(), 1234.5);
    gone.fetch_add(1);
    await_count(followed, 1);
    EXPECT_EQ(x, std::vector<double>(100, 1234.5));
    EXPECT_EQ(error_of([&] { kolo::barrier(); }), told);
  });
}

/// Nobody else can keep it waiting.
TEST(UnwindingHandle, IsWaitedForInAWorldOfOne) {
  kolo::Context context;
  std::vector<double> x(100, 1.0);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_THROW(
        {
          kolo::Handle handle = kolo::allreduce_async({context, "x"}, kolo::view(x));
          throw std::out_of_range("no");
        },
        std::out_of_range);
    kolo::allreduce({context, "x"}, kolo::view(x));  // the name is free
  }
}

TEST(UnwindingHandle, ThatWasDetachedGoesOn) {
  std::atomic<int> gone{0}, done{0};
  run_handles(2, [&] {
    double x = kolo::rank() + 1;
    if (kolo::rank() == 1) {
      await_count(gone, 1);
      kolo::allreduce("x", kolo::view(&x, kolo::Shape{}));
    } else {
      EXPECT_THROW(
          {
            kolo::Handle handle = kolo::allreduce_async("x", kolo::view(&x, kolo::Shape{}));
            handle.on_done([&](const kolo::Status& status) { done.fetch_add(status.ok() ? 1 : 2); });
            handle.detach();
            EXPECT_FALSE(handle.valid());
            throw std::out_of_range("no");
          },
          std::out_of_range);
      gone.fetch_add(1);
    }
    await_count(done, 1);
    EXPECT_EQ(done.load(), 1);
    EXPECT_EQ(x, 3.0);
  });
}

/// What goes during an exception, but was born during it as well, is as ever.
TEST(UnwindingHandle, OfADestructorsOwnIsAsEver) {
  struct Counts {
    ~Counts() { kolo::allreduce_async("x", kolo::view(&x, kolo::Shape{})).wait(); }
    double x = 1;
  };
  run_handles(2, [] {
    EXPECT_THROW(
        {
          const Counts counts;
          throw std::out_of_range("no");
        },
        std::out_of_range);
    EXPECT_EQ(kolo::allreduce(1, kolo::ReduceOp::sum), 2);
  });
}

}  // namespace
