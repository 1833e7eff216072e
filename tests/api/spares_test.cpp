// SPDX-License-Identifier: Apache-2.0
#include "api/spares.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/name_table.hpp"

namespace kolo::api {
namespace {

using engine::Operation;
using engine::OperationPtr;

class Spares : public testing::Test {
 protected:
  /// One for a call, lent, with a signature of this kind.
  OperationPtr begin(core::CollectiveKind kind = core::CollectiveKind::allreduce) {
    OperationPtr operation = take_spare(entry_);
    auto signature = std::make_shared<core::Signature>();
    signature->kind = kind;
    operation->signature = std::move(signature);
    operation->is_lent = true;
    return operation;
  }
  static void complete(Operation& operation, const Status& status = Status()) {
    bool was_interesting = false;
    static_cast<void>(operation.complete(status, was_interesting));
  }
  /// Whole chunks of calls that are over, in a thread of their own, so that others can take them. Where they lie.
  std::vector<const Operation*> drop_chunks(std::size_t chunks) {
    std::vector<const Operation*> dropped;
    std::thread([&] {
      std::vector<OperationPtr> open;
      for (std::size_t i = 0; i < chunks * kSparesOfChunk; ++i) open.push_back(begin());
      for (OperationPtr& one : open) {
        dropped.push_back(one.get());
        complete(*one);
        drop(std::move(one));
      }
    }).join();
    return dropped;
  }
  /// The shelf is the process's.
  void empty_the_shelf() {
    std::thread([&] {
      std::vector<OperationPtr> taken;
      for (std::size_t i = 0; i < kMostSpares + kSparesOfChunk; ++i) taken.push_back(begin());
    }).join();
  }

  void SetUp() override { empty_the_shelf(); }

  engine::NameTable names_{0};
  engine::Entry entry_{0, names_};
};

TEST_F(Spares, ComeBackInTheOrderOfTheCalls) {
  std::thread([&] {
    std::vector<const Operation*> first;
    for (int step = 0; step < 3; ++step) {
      std::vector<OperationPtr> calls;
      for (std::size_t i = 0; i < 3 * kSparesOfChunk; ++i) calls.push_back(begin());
      std::vector<const Operation*> addresses;
      for (OperationPtr& one : calls) {
        EXPECT_FALSE(one->done());
        EXPECT_EQ(one->entry, &entry_);
        EXPECT_EQ(one->call, 0U);
        one->call = 1 + addresses.size();  // the driver's, of an unnamed one
        EXPECT_EQ(one.use_count(), 1);
        addresses.push_back(one.get());
        complete(*one);
      }
      for (OperationPtr& one : calls) drop(std::move(one));
      if (step == 0) first = addresses;
      EXPECT_EQ(addresses, first);
    }
  }).join();
}

TEST_F(Spares, OfOneThreadServeAnother) {
  const std::vector<const Operation*> dropped = drop_chunks(2);
  std::thread([&] {
    std::vector<OperationPtr> held;
    std::vector<const Operation*> taken;
    for (std::size_t i = 0; i < dropped.size(); ++i) {
      held.push_back(begin());
      taken.push_back(held.back().get());
    }
    EXPECT_EQ(taken, dropped) << "the oldest first";
  }).join();
}

TEST_F(Spares, AreNotOfCallsThatFailedOrThatSomebodyHolds) {
  std::thread([&] {
    OperationPtr failed = begin();
    const std::weak_ptr<Operation> end = failed;
    complete(*failed, Status(ErrorCode::timeout, "too late"));
    drop(std::move(failed));
    EXPECT_TRUE(end.expired());

    OperationPtr asked = begin();
    const OperationPtr asker = asked;
    complete(*asked);
    drop(std::move(asked));
    EXPECT_EQ(asker.use_count(), 1);
    EXPECT_NE(begin(), asker);
  }).join();
}

TEST_F(Spares, WhatIsOpenIsLeftToTheEngine) {
  OperationPtr open = begin();
  Operation& lent = *open;
  const std::weak_ptr<Operation> life = open;
  drop(std::move(open));
  EXPECT_FALSE(life.expired());
  complete(lent);
  EXPECT_TRUE(life.expired());
}

TEST_F(Spares, WhatIsNotLentIsItsHoldersAlone) {
  auto own = std::make_shared<Operation>();
  const std::weak_ptr<Operation> life = own;
  drop(std::move(own));
  EXPECT_TRUE(life.expired());
}

TEST_F(Spares, KeepNoResults) {
  std::thread([&] {
    OperationPtr gather = begin(core::CollectiveKind::allgather);
    const Operation* const at = gather.get();
    gather->room.owns_result = true;
    gather->room.result = Tensor(DType::float32, Shape{1000});
    gather->splits = {1, 2};
    gather->received_splits = {3};
    complete(*gather);
    drop(std::move(gather));
    const OperationPtr again = begin();
    ASSERT_EQ(again.get(), at);
    EXPECT_EQ(again->room.result.shape().elements(), Tensor().shape().elements());
    EXPECT_FALSE(again->room.owns_result);
    EXPECT_TRUE(again->splits.empty() && again->received_splits.empty());
  }).join();
}

TEST_F(Spares, AreBounded) {
  const std::size_t chunks = kMostSpares / kSparesOfChunk;
  const std::vector<const Operation*> dropped = drop_chunks(chunks + 3);
  std::vector<std::weak_ptr<Operation>> lives;
  std::thread([&] {
    std::vector<OperationPtr> calls;
    for (std::size_t i = 0; i < dropped.size(); ++i) {
      calls.push_back(begin());
      lives.emplace_back(calls.back());
    }
    for (OperationPtr& one : calls) {
      complete(*one);
      drop(std::move(one));
    }
  }).join();
  std::size_t alive = 0;
  for (const auto& life : lives) alive += life.expired() ? 0 : 1;
  EXPECT_EQ(alive, kMostSpares);
}

}  // namespace
}  // namespace kolo::api
