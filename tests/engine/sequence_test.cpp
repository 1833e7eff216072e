// SPDX-License-Identifier: Apache-2.0
#include "engine/sequence.hpp"

#include <memory>

#include <gtest/gtest.h>

namespace {

using kolo::ErrorCode;
using kolo::Status;
using kolo::engine::NameTable;
using kolo::engine::Operation;
using kolo::engine::OperationPtr;
using kolo::engine::Sequence;

void end(Operation& operation, const Status& status = Status()) {
  bool was_interesting = false;
  static_cast<void>(operation.complete(status, was_interesting));
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

}  // namespace
