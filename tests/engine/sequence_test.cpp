// SPDX-License-Identifier: Apache-2.0
#include "engine/sequence.hpp"

#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace {

using kolo::ErrorCode;
using kolo::Status;
using kolo::core::Round;
using kolo::engine::NameTable;
using kolo::engine::Operation;
using kolo::engine::OperationPtr;
using kolo::engine::Sequence;

void end(Operation& operation, const Status& status = Status()) {
  bool was_awaited = false;
  static_cast<void>(operation.complete(status, was_awaited));
}

TEST(SequenceOfCalls, TakesWhatIsOverAgainInTheOrderOfTheCalls) {
  NameTable names(0);
  Sequence sequence(0, names);
  OperationPtr first = sequence.take();
  OperationPtr second = sequence.take();
  const Operation* const places[] = {first.get(), second.get()};
  EXPECT_NE(places[0], places[1]) << "the first is open";
  for (OperationPtr* one : {&first, &second}) {
    end(**one);
    one->reset();
  }
  first = sequence.take();
  second = sequence.take();
  EXPECT_EQ(first.get(), places[0]);
  EXPECT_EQ(second.get(), places[1]);
  EXPECT_FALSE(first->done() || second->done());
}

TEST(SequenceOfCalls, LeavesAloneWhatSomebodyHasAndWhatFailed) {
  for (const bool fails : {false, true}) {
    NameTable names(0);
    Sequence sequence(0, names);
    OperationPtr first = sequence.take();
    end(*first, fails ? Status(ErrorCode::timeout, "too late") : Status());
    const std::weak_ptr<Operation> old = first;
    if (fails) first.reset();
    EXPECT_NE(sequence.take(), old.lock());
    EXPECT_EQ(old.expired(), fails) << "the sequence has let go of it";
  }
}

// ---------------------------------------------------------------- numbers

/// A sequence, and a mailbox for four calls.
class SequenceOrder : public testing::Test {
 protected:
  OperationPtr make() {
    auto operation = std::make_shared<Operation>();
    operation->entry = &sequence_.entry();
    return operation;
  }
  bool call(OperationPtr operation) { return sequence_.try_call(operation, log_); }
  bool end(Sequence::Reservation& reserved, OperationPtr by_log = nullptr) {
    return sequence_.try_end(reserved, by_log, log_);
  }
  /// The numbers of the calls that have gone to the log, in their order.
  std::vector<Round> logged() {
    std::vector<Round> numbers;
    while (const auto submission = log_.try_pop()) numbers.push_back(submission->operation->call);
    return numbers;
  }

  NameTable names_{0};
  Sequence sequence_{0, names_};
  Sequence::Calls log_{4};
};

TEST_F(SequenceOrder, BlockingAndAsynchronousCallsAreOne) {
  EXPECT_TRUE(call(make()));
  Sequence::Reservation reserved = sequence_.begin();
  EXPECT_EQ(reserved.call, 2U);
  EXPECT_TRUE(end(reserved, make()));
  EXPECT_TRUE(call(make()));
  EXPECT_EQ(logged(), (std::vector<Round>{1, 2, 3}));
}

TEST_F(SequenceOrder, WhatOtherThreadsCallDuringATurnComesBehindIt) {
  for (const bool avoids : {false, true}) {
    Sequence::Reservation reserved = sequence_.begin();
    const Round number = reserved.call;
    EXPECT_TRUE(call(make()));
    EXPECT_TRUE(call(make()));
    EXPECT_TRUE(logged().empty());
    reserved.has_avoided = avoids;
    EXPECT_TRUE(end(reserved, avoids ? nullptr : make()));
    EXPECT_TRUE(reserved.had_others);
    std::vector<Round> wanted{number, number + 1, number + 2};
    if (avoids) wanted.erase(wanted.begin());
    EXPECT_EQ(logged(), wanted);
    EXPECT_EQ(sequence_.avoided(), avoids ? number : 0U);
  }
}

TEST_F(SequenceOrder, ACallThatIsNotMadeTakesNoNumber) {
  Sequence::Reservation reserved = sequence_.begin();
  EXPECT_TRUE(end(reserved));
  EXPECT_EQ(sequence_.begin().call, 1U);
}

TEST_F(SequenceOrder, AFullMailboxTakesNoNumber) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(call(make()));
  OperationPtr more = make();
  EXPECT_FALSE(sequence_.try_call(more, log_));
  EXPECT_NE(more, nullptr) << "nothing was done";
  Sequence::Reservation reserved = sequence_.begin();
  EXPECT_EQ(reserved.call, 5U);
  OperationPtr last = make();
  EXPECT_TRUE(call(make())) << "behind the turn";
  EXPECT_FALSE(sequence_.try_end(reserved, last, log_));
  EXPECT_NE(last, nullptr);
  EXPECT_EQ(logged(), (std::vector<Round>{1, 2, 3, 4}));
  EXPECT_TRUE(sequence_.try_end(reserved, last, log_));
  EXPECT_EQ(logged(), (std::vector<Round>{5, 6}));
}

TEST_F(SequenceOrder, ACallDuringAJoinHasNoNumberAndTheJoinSetsTheNext) {
  EXPECT_TRUE(call(make()));
  EXPECT_EQ(sequence_.begin_join(), 1U);
  EXPECT_TRUE(call(make()));
  sequence_.go_on_from(9);
  sequence_.end_join();
  EXPECT_TRUE(call(make()));
  EXPECT_EQ(logged(), (std::vector<Round>{1, 0, 10}));
}

/// One turn at a time, in the order in which the threads came.
TEST_F(SequenceOrder, BlockingCallsQueue) {
  std::atomic<int> inside{0};
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        Sequence::Reservation reserved = sequence_.begin();
        EXPECT_EQ(inside.fetch_add(1), 0);
        reserved.has_avoided = true;
        inside.fetch_sub(1);
        EXPECT_TRUE(end(reserved));
        done.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done.load(), 200);
  EXPECT_EQ(sequence_.avoided(), 200U);
}

TEST_F(SequenceOrder, OnlyASecondThreadIsOne) {
  EXPECT_FALSE(sequence_.is_second_thread());
  EXPECT_FALSE(sequence_.is_second_thread());
  std::thread other([this] {
    EXPECT_TRUE(sequence_.is_second_thread());
    EXPECT_FALSE(sequence_.is_second_thread()) << "which is said once";
  });
  other.join();
  EXPECT_FALSE(sequence_.is_second_thread());
}

/// The sequence of the world, or of another set, whose first call all members must have made before.
TEST(SequenceShortcut, ACallMayAvoidTheLogOnceTheOneBeforeIsOver) {
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
  };
  for (const Round by_log : {0, 1}) {
    const std::size_t bytes = kolo::core::ShortcutMemory::column_bytes(0);
    const std::unique_ptr<std::byte, Free> memory(
        static_cast<std::byte*>(::operator new (bytes, std::align_val_t{4096})));
    NameTable names(0);
    Sequence sequence(0, names);
    Sequence::Calls log(64);
    sequence.shortcut.make({kolo::base::Columns::in_a_row(memory.get(), bytes, 1), 0, 0}, nullptr, by_log);
    const auto may_avoid = [&] {
      Sequence::Reservation reserved = sequence.begin();
      OperationPtr none;
      EXPECT_TRUE(sequence.try_end(reserved, none, log));
      return reserved.may_avoid_log;
    };
    EXPECT_EQ(may_avoid(), by_log == 0);
    for (int i = 0; i < 3; ++i) {
      auto operation = std::make_shared<Operation>();
      EXPECT_TRUE(sequence.try_call(operation, log));
      EXPECT_FALSE(may_avoid()) << "one is in the log";
    }
    sequence.note_over();
    sequence.note_over();
    EXPECT_FALSE(may_avoid());
    sequence.note_over();
    EXPECT_TRUE(may_avoid());
    sequence.shortcut.close();
    EXPECT_FALSE(may_avoid());
  }
}

}  // namespace
