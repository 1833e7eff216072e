// SPDX-License-Identifier: Apache-2.0
#include "engine/operation.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace {

using kolo::DType;
using kolo::ErrorCode;
using kolo::Shape;
using kolo::Status;
using kolo::engine::Operation;
using kolo::engine::OperationPtr;
namespace base = kolo::base;

TEST(Operation, CompletesOnceWithItsOutcome) {
  Operation operation;
  EXPECT_FALSE(operation.done());
  bool was_awaited = true;
  EXPECT_TRUE(operation.complete(Status(ErrorCode::timeout, "too late"), was_awaited).empty());
  EXPECT_FALSE(was_awaited);
  EXPECT_TRUE(operation.done());
  EXPECT_EQ(operation.outcome().code(), ErrorCode::timeout);
  EXPECT_EQ(operation.outcome().message(), "too late");
  EXPECT_DEATH(static_cast<void>(operation.complete(Status(), was_awaited)), "an operation completed twice");
}

TEST(Operation, InterestIsCountedOnceAndOnlyWhileOpen) {
  Operation operation;
  EXPECT_TRUE(operation.mark_awaited());
  EXPECT_FALSE(operation.mark_awaited());
  bool was_awaited = false;
  static_cast<void>(operation.complete(Status(), was_awaited));
  EXPECT_TRUE(was_awaited);
  EXPECT_FALSE(operation.mark_awaited());
  operation.reset();
  EXPECT_FALSE(operation.done());
  EXPECT_TRUE(operation.outcome().ok());
  EXPECT_TRUE(operation.mark_awaited());
}

TEST(Operation, CallbacksAreHandedOutInOrderAndNoneAfterwards) {
  Operation operation;
  std::vector<int> called;
  for (int i = 0; i < 3; ++i) {
    std::function<void(const Status&)> callback = [&called, i](const Status&) { called.push_back(i); };
    EXPECT_TRUE(operation.add_callback(callback));
  }
  bool was_awaited = false;
  for (auto& callback : operation.complete(Status(), was_awaited)) callback(operation.outcome());
  EXPECT_EQ(called, (std::vector<int>{0, 1, 2}));
  std::function<void(const Status&)> late = [](const Status&) {};
  EXPECT_FALSE(operation.add_callback(late));
  EXPECT_TRUE(late) << "the caller still has it";
}

TEST(Operation, IsReleasedOnceNobodyIsLeftToBeSeenTo) {
  for (const bool fails : {false, true}) {
    for (const bool is_attended : {false, true}) {
      Operation operation;
      std::function<void(const Status&)> callback = [](const Status&) {};
      if (is_attended) {
        EXPECT_TRUE(operation.add_callback(callback));
      }
      EXPECT_FALSE(operation.released());
      bool was_awaited = false;
      const Status outcome = fails ? Status(ErrorCode::timeout, "too late") : Status();
      EXPECT_EQ(operation.complete(outcome, was_awaited).size(), is_attended ? 1U : 0U);
      EXPECT_TRUE(operation.released());
      callback = [](const Status&) {};
      EXPECT_FALSE(operation.add_callback(callback));
      EXPECT_TRUE(operation.released()) << "who comes late changes nothing";
      operation.reset();
      EXPECT_FALSE(operation.released());
    }
  }
}

TEST(Operation, CompletesWithoutACallWhereNobodyAttends) {
  Operation operation;
  EXPECT_TRUE(operation.mark_awaited());
  bool was_awaited = false;
  EXPECT_TRUE(operation.complete_unattended(was_awaited));
  EXPECT_TRUE(was_awaited);
  EXPECT_TRUE(operation.done() && operation.released() && operation.outcome().ok());
  Operation attended;
  std::function<void(const Status&)> callback = [](const Status&) {};
  EXPECT_TRUE(attended.add_callback(callback));
  EXPECT_FALSE(attended.complete_unattended(was_awaited));
  EXPECT_FALSE(attended.done());
}

TEST(Operation, SleepersAreWoken) {
  Operation operation;
  EXPECT_FALSE(operation.sleep_until(base::now()));
  std::atomic<int> awake{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      EXPECT_TRUE(operation.sleep_until(std::nullopt));
      awake.fetch_add(1);
    });
  }
  bool was_awaited = false;
  static_cast<void>(operation.complete(Status(), was_awaited));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(awake.load(), 3);
  EXPECT_TRUE(operation.sleep_until(std::nullopt));
}

kolo::engine::OperationPtr allgather(bool owns_result) {
  auto operation = std::make_shared<Operation>();
  auto signature = std::make_shared<kolo::core::Signature>();
  signature->kind = kolo::core::CollectiveKind::allgather;
  signature->tensors.push_back({DType::int32, Shape{3}});
  operation->signature = signature;
  operation->outputs.first.row = Shape{3};
  operation->outputs.first.row_bytes = 12;
  operation->outputs.first.owns_result = owns_result;
  return operation;
}

TEST(Operation, MakesRoomForAResultOfItsOwn) {
  const auto operation = allgather(true);
  std::byte* const output = operation->allocate_output(0, {24, 0, 12});
  EXPECT_EQ(output, operation->outputs.first.result.data());
  EXPECT_EQ(operation->outputs.first.result.shape(), (Shape{3, 3}));
  EXPECT_EQ(operation->outputs.first.result.dtype(), DType::int32);
}

TEST(Operation, TakesTheCallersMemoryOnlyWhenItFits) {
  const auto operation = allgather(false);
  std::vector<int> memory(9);
  operation->buffers.push_back({nullptr, reinterpret_cast<std::byte*>(memory.data()), 0});
  operation->outputs.first.output_elements = 9;
  EXPECT_EQ(operation->allocate_output(0, {24, 0, 12}), reinterpret_cast<std::byte*>(memory.data()));
  try {
    operation->allocate_output(0, {24, 12, 12});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const kolo::Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.status().message(), "the output of this allgather has 9 elements, but the ranks together gave 12");
  }
}

}  // namespace
