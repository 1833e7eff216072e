// SPDX-License-Identifier: Apache-2.0
#include "control/shortcut.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/machine.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::control {
namespace {

using Verdict = Shortcut::Verdict;

/// A rank's end, and the memory of the call that it is in.
struct End : Shortcut {
  explicit End(const core::ShortcutMemory& its_memory) : Shortcut(its_memory), memory(its_memory) {}
  core::ShortcutMemory memory;
  core::Round call = 0;
};

struct Free {
  void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{base::kPageBytes}); }
};
using Pages = std::unique_ptr<std::byte, Free>;
/// That have been used before.
Pages pages(std::size_t bytes) {
  Pages memory(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{base::kPageBytes})));
  std::memset(memory.get(), 0xa5, bytes);
  return memory;
}

/// The ends of all ranks over one memory.
class Ends {
 public:
  Ends(int ranks, std::size_t capacity) {
    const std::size_t column = core::ShortcutMemory::column_bytes(capacity);
    memory_ = pages(static_cast<std::size_t>(ranks) * column);
    const auto columns = base::Columns::in_a_row(memory_.get(), column, ranks);
    for (int rank = 0; rank < ranks; ++rank)
      ends_.push_back(std::make_unique<End>(core::ShortcutMemory(columns, capacity, rank)));
  }
  End& operator[](int rank) { return *ends_[static_cast<std::size_t>(rank)]; }

 private:
  Pages memory_;
  std::vector<std::unique_ptr<End>> ends_;
};

constexpr Shortcut::Tag kTag = 7;

/// Where a rank's input lies: in the line if it fits there.
std::byte* place(const End& end, int rank, std::size_t bytes) {
  return bytes <= core::ShortcutMemory::kInlineBytes ? end.memory.inlined(rank, end.call)
                                                     : end.memory.payload(rank, end.call);
}

void say(End& end, core::Round call, Shortcut::Tag tag, const void* input, std::size_t bytes) {
  end.begin(call);
  end.call = call;
  if (bytes > 0) std::memcpy(place(end, end.memory.local_rank(), bytes), input, bytes);
  end.speak(tag);
}
void say(End& end, core::Round call, Shortcut::Tag tag, int value) { say(end, call, tag, &value, sizeof value); }

int value_of(const End& end, int rank) {
  int value = 0;
  std::memcpy(&value, place(end, rank, sizeof value), sizeof value);
  return value;
}

TEST(Shortcut, AllReadyIsTogetherAndEverybodySeesAllInputs) {
  Ends ends(3, 0);
  // More calls than a word has bits for.
  for (int call = 1; call < 70000; ++call) {
    for (int rank = 0; rank < 3; ++rank) {
      if (rank > 0) {
        EXPECT_EQ(ends[0].look(), Verdict::undecided);
      }
      say(ends[rank], static_cast<core::Round>(call), kTag, 3 * call + rank);
    }
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(ends[rank].look(), Verdict::together);
      for (int other = 0; other < 3; ++other) ASSERT_EQ(value_of(ends[rank], other), 3 * call + other);
    }
  }
}

TEST(Shortcut, InputsOfEverySizeUpToTheLongest) {
  Ends ends(2, 300);
  core::Round call = 0;
  for (std::size_t bytes : {0, 1, 119, 120, 121, 128, 299, 300}) {
    std::vector<unsigned char> first(bytes), second(bytes);
    first.reserve(1);  // an empty vector's data may be null, which memcmp does not take
    second.reserve(1);
    std::iota(first.begin(), first.end(), static_cast<unsigned char>(bytes));
    std::iota(second.begin(), second.end(), static_cast<unsigned char>(bytes + 100));
    ++call;
    say(ends[0], call, kTag, first.data(), bytes);
    say(ends[1], call, kTag, second.data(), bytes);
    ASSERT_EQ(ends[0].look(), Verdict::together);
    ASSERT_EQ(ends[1].look(), Verdict::together);
    EXPECT_EQ(std::memcmp(place(ends[0], 1, bytes), second.data(), bytes), 0);
    EXPECT_EQ(std::memcmp(place(ends[1], 0, bytes), first.data(), bytes), 0);
  }
}

TEST(Shortcut, DifferentTagsGoByTheLogOnAllRanksAndTheNextCallIsFree) {
  Ends ends(3, 0);
  say(ends[0], 1, kTag, 1);
  say(ends[1], 1, kTag + 1, 2);
  EXPECT_EQ(ends[0].look(), Verdict::by_log);
  EXPECT_EQ(ends[1].look(), Verdict::by_log);
  say(ends[2], 1, kTag, 3);
  EXPECT_EQ(ends[2].look(), Verdict::by_log);
  for (int rank = 0; rank < 3; ++rank) {
    ends[rank].give(1);
    say(ends[rank], 2, kTag, 4);
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ends[rank].look(), Verdict::together);
}

TEST(Shortcut, ACallThatARankHasGivenToTheLogGoesThereOnAllWithoutWaiting) {
  Ends ends(3, 0);
  ends[1].give(1);
  for (const int rank : {0, 2}) {
    say(ends[rank], 1, kTag, 1);
    EXPECT_EQ(ends[rank].look(), Verdict::by_log);
  }
}

/// Asynchronous calls run ahead, and leave the lines alone: a peer that is late still finds what it needs.
TEST(Shortcut, ALateRankFindsTheWordsOfACallBehindWhichOthersWereGivenToTheLog) {
  Ends ends(2, 0);
  for (core::Round call = 1; call < 200; call += 4) {
    say(ends[0], call, kTag, 5);
    say(ends[1], call, kTag, 6);
    EXPECT_EQ(ends[0].look(), Verdict::together);
    for (core::Round next = call + 1; next < call + 3; ++next) ends[0].give(next);
    EXPECT_EQ(ends[1].look(), Verdict::together);
    EXPECT_EQ(value_of(ends[1], 0), 5);
    say(ends[1], call + 1, kTag, 7);
    EXPECT_EQ(ends[1].look(), Verdict::by_log);
    ends[1].give(call + 1);
    ends[1].give(call + 2);
  }
}

/// A call that is not made after all leaves its number to the next one.
TEST(Shortcut, ACallMayBeginAgainBeforeItIsSpoken) {
  Ends ends(2, 0);
  ends[0].begin(1);
  say(ends[1], 1, kTag, 2);
  say(ends[0], 1, kTag, 1);
  EXPECT_EQ(ends[0].look(), Verdict::together);
  EXPECT_EQ(value_of(ends[0], 1), 2);
}

/// A word that has the bits of a later call is not taken for that call's.
TEST(Shortcut, AWordOfLongAgoIsNone) {
  for (const core::Round later : {core::Round{1} << 15, core::Round{1} << 16, core::Round{1} << 40}) {
    Ends ends(2, 0);
    for (int rank = 0; rank < 2; ++rank) say(ends[rank], 3, kTag, rank);
    EXPECT_EQ(ends[0].look(), Verdict::together);
    // Those between went by the log.
    for (int rank = 0; rank < 2; ++rank) ends[rank].give(3 + later - 1);
    say(ends[0], 3 + later, kTag, 5);
    ASSERT_NE(ends[0].look(), Verdict::together) << "behind " << later;
    say(ends[1], 3 + later, kTag, 6);
    EXPECT_EQ(ends[1].look(), ends[0].demote());
  }
}

TEST(Shortcut, ADemotedCallGoesByTheLogForTheLateRankToo) {
  Ends ends(2, 0);
  for (core::Round call = 1; call < 10; call += 2) {
    say(ends[0], call, kTag, 1);
    EXPECT_EQ(ends[0].look(), Verdict::undecided);
    EXPECT_EQ(ends[0].demote(), Verdict::by_log);
    EXPECT_EQ(ends[0].look(), Verdict::by_log);
    ends[0].give(call);
    say(ends[1], call, kTag, 2);
    EXPECT_EQ(ends[1].look(), Verdict::by_log);
    ends[1].give(call);
    say(ends[0], call + 1, kTag, 3);
    say(ends[1], call + 1, kTag, 4);
    EXPECT_EQ(ends[0].look(), Verdict::together);
    EXPECT_EQ(ends[1].look(), Verdict::together);
    EXPECT_EQ(value_of(ends[0], 1), 4);
  }
}

TEST(Shortcut, DemotingTooLateChangesNothing) {
  Ends ends(2, 0);
  say(ends[0], 1, kTag, 1);
  say(ends[1], 1, kTag, 2);
  EXPECT_EQ(ends[0].demote(), Verdict::together);
  EXPECT_EQ(ends[1].look(), Verdict::together);
}

/// Runs `act` when one of the memory's pages is touched, between two instructions of whoever touches it.
class Trap {
 public:
  Trap(std::byte* page, std::function<void()> act) : page_(page), act_(std::move(act)) {
    set_ = this;
    struct sigaction action {};
    action.sa_handler = [](int) { set_->spring(); };
    EXPECT_EQ(::sigaction(SIGSEGV, &action, &before_), 0);
    EXPECT_EQ(::mprotect(page_, base::kPageBytes, PROT_NONE), 0);
  }
  ~Trap() {
    EXPECT_TRUE(sprung_);
    EXPECT_EQ(::sigaction(SIGSEGV, &before_, nullptr), 0);
  }
  Trap(const Trap&) = delete;
  Trap& operator=(const Trap&) = delete;

 private:
  void spring() {
    ::mprotect(page_, base::kPageBytes, PROT_READ | PROT_WRITE);
    sprung_ = true;
    act_();
  }

  static inline Trap* set_ = nullptr;
  std::byte* const page_;
  const std::function<void()> act_;
  struct sigaction before_ {};
  bool sprung_ = false;
};

/// It looks at the peer's word, then at what the peer has given to the log. In between the peer speaks, and gives the
/// next call.
TEST(Shortcut, APeerThatSpeaksBetweenTwoLooksIsHeard) {
  constexpr std::size_t kLines = 256;  // a column begins with them; the given word is behind
  const std::size_t column = core::ShortcutMemory::column_bytes(0);
  const Pages memory = pages(2 * column + base::kPageBytes);
  const auto columns = base::Columns::in_a_row(memory.get() + base::kPageBytes - kLines, column, 2);
  End peer(core::ShortcutMemory(columns, 0, 0)), end(core::ShortcutMemory(columns, 0, 1));
  say(end, 1, kTag, 2);
  const Trap trap(memory.get() + base::kPageBytes, [&peer] {
    say(peer, 1, kTag, 1);
    peer.give(2);
  });
  EXPECT_EQ(end.look(), Verdict::together);
  EXPECT_EQ(value_of(end, 0), 1);
}

TEST(Shortcut, EveryAspectOfASignatureIsInItsTag) {
  using core::CollectiveKind;
  const auto tag = [](ReduceOp op, DType dtype, const Shape& shape, double prescale, double postscale) {
    return Shortcut::tag_of(CollectiveKind::allreduce, dtype, shape, op, prescale, postscale);
  };
  const Shape shape{4, 6};
  const std::set<Shortcut::Tag> tags{
      tag(ReduceOp::sum, DType::float32, shape, 1, 1),
      tag(ReduceOp::max, DType::float32, shape, 1, 1),
      tag(ReduceOp::sum, DType::int32, shape, 1, 1),
      tag(ReduceOp::sum, DType::float32, Shape{6, 4}, 1, 1),
      tag(ReduceOp::sum, DType::float32, Shape{24}, 1, 1),
      tag(ReduceOp::sum, DType::float32, Shape{24, 1}, 1, 1),
      tag(ReduceOp::sum, DType::float32, Shape{}, 1, 1),
      tag(ReduceOp::sum, DType::float32, shape, 2, 1),
      tag(ReduceOp::sum, DType::float32, shape, 1, 2),
      Shortcut::tag_of(CollectiveKind::broadcast, DType::float32, shape),
      Shortcut::tag_of(CollectiveKind::broadcast, DType::float32, shape, ReduceOp::sum, 1, 1, 1),
      Shortcut::tag_of(CollectiveKind::allgather, DType::float32, shape),
      Shortcut::tag_of(CollectiveKind::alltoall, DType::float32, shape),
      Shortcut::tag_of(CollectiveKind::reduce_scatter, DType::float32, shape),
      Shortcut::tag_of(CollectiveKind::barrier, DType::float32, Shape{})};
  EXPECT_EQ(tags.size(), 15U);
  EXPECT_EQ(tags.count(tag(ReduceOp::sum, DType::float32, Shape{4, 6}, 1, 1)), 1U);
}

// Ranks of random patience, with random mistakes, which give some calls to the log at once, often several in a row. A
// call by the log is over when all have come there, as with the log. A rank may avoid the log in the call after.
class ShortcutThreads : public ::testing::TestWithParam<int> {};

TEST_P(ShortcutThreads, WithoutPatienceComeToTheSameVerdicts) {
  const int ranks = GetParam();
  const int calls = kolo::testing::share_of(ranks == 2 ? 40000 : 4000);
  Ends ends(ranks, 256);
  std::vector<std::vector<bool>> avoided(static_cast<std::size_t>(ranks));
  std::vector<std::atomic<int>> in_log(static_cast<std::size_t>(calls));
  const auto body = [&](int rank) {
    std::minstd_rand random(static_cast<unsigned>(rank + 1));
    std::minstd_rand common(7);
    End& end = ends[rank];
    bool is_over = true;
    const auto give = [&](int call) {
      end.give(static_cast<core::Round>(call) + 1);
      in_log[static_cast<std::size_t>(call)].fetch_add(1);
      avoided[static_cast<std::size_t>(rank)].push_back(false);
    };
    const auto await = [&](int call) {
      while (in_log[static_cast<std::size_t>(call)].load() < ranks) std::this_thread::yield();
      is_over = true;
    };
    for (int call = 0; call < calls; ++call) {
      const std::vector<int> input(call % 2 == 0 ? 3 : 40, call * ranks + rank);
      const std::size_t bytes = input.size() * sizeof(int);
      const unsigned mood = static_cast<unsigned>(random()) % 16;
      const bool is_run =
          static_cast<unsigned>(common()) % 64 < 16;  // all ranks give these to the log, and do not wait
      if (is_run || !is_over || mood == 0) {
        give(call);
        is_over = false;
        if (!is_run) await(call);
        continue;
      }
      say(end, static_cast<core::Round>(call) + 1, mood == 1 ? kTag + 1 : kTag, input.data(), bytes);
      Verdict verdict = end.look();
      for (unsigned patience = mood; patience > 0 && verdict == Verdict::undecided; --patience) {
        std::this_thread::yield();
        verdict = end.look();
      }
      verdict = end.demote();
      if (verdict == Verdict::by_log) {
        give(call);
        await(call);
        continue;
      }
      avoided[static_cast<std::size_t>(rank)].push_back(true);
      for (int other = 0; other < ranks; ++other) {
        const std::vector<int> expected(input.size(), call * ranks + other);
        ASSERT_EQ(std::memcmp(place(end, other, bytes), expected.data(), bytes), 0) << "call " << call;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_rank : avoided) EXPECT_EQ(of_rank, avoided.front());
  const std::set<bool> met(avoided.front().begin(), avoided.front().end());
  EXPECT_EQ(met.size(), 2U) << "both verdicts";
}

// Two have a CPU each, and meet at any instruction; four share them, and meet where one is interrupted.
INSTANTIATE_TEST_SUITE_P(Ranks, ShortcutThreads, ::testing::Values(2, 4));

}  // namespace
}  // namespace kolo::control
