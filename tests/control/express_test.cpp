// SPDX-License-Identifier: Apache-2.0
#include "control/express.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/sanitized.hpp"

namespace kolo::control {
namespace {

using Verdict = Express::Verdict;

/// The ends of all ranks over one memory.
class Ends {
 public:
  /// The memory has been used before.
  Ends(int ranks, std::size_t capacity) {
    const std::size_t column = Express::column_bytes(capacity);
    const std::size_t bytes = static_cast<std::size_t>(ranks) * column;
    memory_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{4096})));
    std::memset(memory_.get(), 0xa5, bytes);
    const auto columns = base::Columns::in_a_row(memory_.get(), column, ranks);
    for (int rank = 0; rank < ranks; ++rank) ends_.push_back(std::make_unique<Express>(columns, capacity, rank));
  }
  Express& operator[](int rank) { return *ends_[static_cast<std::size_t>(rank)]; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<std::unique_ptr<Express>> ends_;
};

constexpr Express::Tag kTag = 7;

/// Where a rank's input lies: in the line if it fits there.
std::byte* place(const Express& end, int rank, std::size_t bytes) {
  return bytes <= Express::kRoom ? end.room(rank) : end.payload(rank);
}

void say(Express& end, Express::Tag tag, const void* input, std::size_t bytes) {
  end.begin();
  if (bytes > 0) std::memcpy(place(end, end.local_rank(), bytes), input, bytes);
  end.speak(tag);
}
void say(Express& end, Express::Tag tag, int value) { say(end, tag, &value, sizeof value); }

int value_of(Express& end, int rank) {
  int value = 0;
  std::memcpy(&value, place(end, rank, sizeof value), sizeof value);
  return value;
}

/// A rank that is absent does not speak. Words of long ago have the 16 bits of a later call.
TEST(Express, GoesOnBehindAJoin) {
  Ends ends(2, 0);
  for (int rank = 0; rank < 2; ++rank) say(ends[rank], kTag, rank);
  EXPECT_EQ(ends[0].look(), Verdict::together);
  say(ends[0], kTag, 1);
  EXPECT_EQ(ends[0].demote(), Verdict::by_log) << "rank 1 has joined";
  // The first call behind the second and the third has the 16 bits of a call whose word the line still held.
  for (const std::uint64_t call :
       {std::uint64_t{4}, std::uint64_t{65542}, std::uint64_t{131080}, std::uint64_t{196607}}) {
    for (int rank = 0; rank < 2; ++rank) {
      ends[rank].resume(call);
      ends[rank].pass_over();
    }
    for (int again = 0; again < 3; ++again) {
      say(ends[0], kTag, 5);
      EXPECT_EQ(ends[0].look(), Verdict::undecided) << "after call " << call;
      say(ends[1], kTag, 6);
      EXPECT_EQ(ends[0].look(), Verdict::together);
      EXPECT_EQ(value_of(ends[0], 1), 6);
      EXPECT_EQ(ends[1].look(), Verdict::together);
    }
  }
}

TEST(Express, AllReadyIsTogetherAndEverybodySeesAllInputs) {
  Ends ends(3, 0);
  // More calls than the sixteen bits of a word can count.
  for (int call = 0; call < 70000; ++call) {
    for (int rank = 0; rank < 3; ++rank) {
      if (rank > 0) {
        EXPECT_EQ(ends[0].look(), Verdict::undecided);
      }
      say(ends[rank], kTag, 3 * call + rank);
    }
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(ends[rank].look(), Verdict::together);
      for (int other = 0; other < 3; ++other) ASSERT_EQ(value_of(ends[rank], other), 3 * call + other);
    }
  }
}

TEST(Express, InputsOfEverySizeUpToTheLongest) {
  Ends ends(2, 300);
  EXPECT_EQ(ends[0].capacity(), 300U);
  for (std::size_t bytes : {0, 1, 119, 120, 121, 128, 299, 300}) {
    std::vector<unsigned char> first(bytes), second(bytes);
    first.reserve(1);  // an empty vector's data may be null, which memcmp does not take
    second.reserve(1);
    std::iota(first.begin(), first.end(), static_cast<unsigned char>(bytes));
    std::iota(second.begin(), second.end(), static_cast<unsigned char>(bytes + 100));
    say(ends[0], kTag, first.data(), bytes);
    say(ends[1], kTag, second.data(), bytes);
    ASSERT_EQ(ends[0].look(), Verdict::together);
    ASSERT_EQ(ends[1].look(), Verdict::together);
    EXPECT_EQ(std::memcmp(place(ends[0], 1, bytes), second.data(), bytes), 0);
    EXPECT_EQ(std::memcmp(place(ends[1], 0, bytes), first.data(), bytes), 0);
  }
}

TEST(Express, DifferentTagsGoByTheLogOnAllRanksAndTheNextCallIsFree) {
  Ends ends(2, 0);
  say(ends[0], kTag, 1);
  say(ends[1], kTag + 1, 2);
  EXPECT_EQ(ends[0].look(), Verdict::by_log);
  EXPECT_EQ(ends[1].look(), Verdict::by_log);
  say(ends[0], kTag, 3);
  say(ends[1], kTag, 4);
  EXPECT_EQ(ends[0].look(), Verdict::together);
  EXPECT_EQ(ends[1].look(), Verdict::together);
}

TEST(Express, OneThatMustGoByTheLogTakesAllWithItWithoutWaiting) {
  Ends ends(3, 0);
  ends[1].say_by_log();
  EXPECT_EQ(ends[1].look(), Verdict::by_log);
  say(ends[0], kTag, 1);
  EXPECT_EQ(ends[0].look(), Verdict::by_log);
  say(ends[2], kTag, 1);
  EXPECT_EQ(ends[2].look(), Verdict::by_log);
}

TEST(Express, ADemotedCallGoesByTheLogForTheLateRankToo) {
  Ends ends(2, 0);
  for (int call = 0; call < 5; ++call) {
    say(ends[0], kTag, 1);
    EXPECT_EQ(ends[0].look(), Verdict::undecided);
    EXPECT_EQ(ends[0].demote(), Verdict::by_log);
    EXPECT_EQ(ends[0].look(), Verdict::by_log);
    say(ends[1], kTag, 2);
    EXPECT_EQ(ends[1].look(), Verdict::by_log);
    say(ends[0], kTag, 3);
    say(ends[1], kTag, 4);
    EXPECT_EQ(ends[0].look(), Verdict::together);
    EXPECT_EQ(ends[1].look(), Verdict::together);
    EXPECT_EQ(value_of(ends[0], 1), 4);
  }
}

TEST(Express, DemotingTooLateChangesNothing) {
  Ends ends(2, 0);
  say(ends[0], kTag, 1);
  say(ends[1], kTag, 2);
  EXPECT_EQ(ends[0].demote(), Verdict::together);
  EXPECT_EQ(ends[1].look(), Verdict::together);
}

TEST(Express, EveryAspectOfASignatureIsInItsTag) {
  using core::CollectiveKind;
  const auto tag = [](ReduceOp op, DType dtype, const Shape& shape, double prescale, double postscale) {
    return Express::tag_of(CollectiveKind::allreduce, dtype, shape, op, prescale, postscale);
  };
  const Shape shape{4, 6};
  const std::set<Express::Tag> tags{
      tag(ReduceOp::sum, DType::float32, shape, 1, 1),
      tag(ReduceOp::max, DType::float32, shape, 1, 1),
      tag(ReduceOp::sum, DType::int32, shape, 1, 1),
      tag(ReduceOp::sum, DType::float32, Shape{6, 4}, 1, 1),
      tag(ReduceOp::sum, DType::float32, Shape{24}, 1, 1),
      tag(ReduceOp::sum, DType::float32, Shape{24, 1}, 1, 1),
      tag(ReduceOp::sum, DType::float32, Shape{}, 1, 1),
      tag(ReduceOp::sum, DType::float32, shape, 2, 1),
      tag(ReduceOp::sum, DType::float32, shape, 1, 2),
      Express::tag_of(CollectiveKind::broadcast, DType::float32, shape),
      Express::tag_of(CollectiveKind::broadcast, DType::float32, shape, ReduceOp::sum, 1, 1, 1),
      Express::tag_of(CollectiveKind::allgather, DType::float32, shape),
      Express::tag_of(CollectiveKind::alltoall, DType::float32, shape),
      Express::tag_of(CollectiveKind::reduce_scatter, DType::float32, shape),
      Express::tag_of(CollectiveKind::barrier, DType::float32, Shape{})};
  EXPECT_EQ(tags.size(), 15U);
  EXPECT_EQ(tags.count(Express::kByLog), 0U);
  EXPECT_EQ(tags.count(tag(ReduceOp::sum, DType::float32, Shape{4, 6}, 1, 1)), 1U);
}

// Ranks of random patience, and random mistakes. A call by the log ends only when all have come there, as with the log.
TEST(Express, ThreadsWithoutPatienceComeToTheSameVerdicts) {
  constexpr int kRanks = 4;
  constexpr int kCalls = kolo::testing::share_of(3000);
  Ends ends(kRanks, 256);
  std::vector<std::vector<Verdict>> verdicts(kRanks);
  std::vector<std::atomic<int>> in_log(kCalls);
  const auto body = [&](int rank) {
    std::minstd_rand random(static_cast<unsigned>(rank + 1));
    Express& end = ends[rank];
    for (int call = 0; call < kCalls; ++call) {
      const std::vector<int> input(call % 2 == 0 ? 3 : 40, call * kRanks + rank);
      const std::size_t bytes = input.size() * sizeof(int);
      const unsigned mood = static_cast<unsigned>(random()) % 16;
      say(end, mood == 0 ? Express::kByLog : kTag, input.data(), bytes);
      Verdict verdict = end.look();
      for (unsigned patience = mood; patience > 0 && verdict == Verdict::undecided; --patience) {
        std::this_thread::yield();
        verdict = end.look();
      }
      verdict = end.demote();
      verdicts[static_cast<std::size_t>(rank)].push_back(verdict);
      if (verdict == Verdict::by_log) {
        std::atomic<int>& here = in_log[static_cast<std::size_t>(call)];
        here.fetch_add(1);
        while (here.load() < kRanks) std::this_thread::yield();
        continue;
      }
      for (int other = 0; other < kRanks; ++other) {
        const std::vector<int> expected(input.size(), call * kRanks + other);
        ASSERT_EQ(std::memcmp(place(end, other, bytes), expected.data(), bytes), 0) << "call " << call;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_rank : verdicts) EXPECT_EQ(of_rank, verdicts.front());
  std::set<Verdict> met(verdicts.front().begin(), verdicts.front().end());
  EXPECT_EQ(met.size(), 2U) << "both verdicts";
}

}  // namespace
}  // namespace kolo::control
