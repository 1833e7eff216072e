// SPDX-License-Identifier: Apache-2.0
#include "control/board.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <kolo/error.hpp>

namespace kolo::control {
namespace {

class BoardMemory {
 public:
  explicit BoardMemory(const BoardShape& shape) : words_(shape.bytes() / 64) {}
  std::byte* get() { return words_.front().bytes; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  std::vector<Line> words_;
};

Bytes pattern(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

BoardShape tiny(int ranks) {
  BoardShape shape;
  shape.ranks = ranks;
  shape.ids = 8;
  shape.message_ring_bytes = 64;
  shape.log_ring_bytes = 64;
  return shape;
}

TEST(Board, SizeCoversEveryColumnAndIsWholePages) {
  BoardShape shape = tiny(3);
  EXPECT_EQ(shape.bytes(), 4096u);  // 64 + 3 * (256 + 64 + 64) + 64
  shape.log_ring_bytes = 4096;
  EXPECT_EQ(shape.bytes(), 8192u);
}

TEST(Board, CountsOfOneRankAreSeenUnderItsNumberAndIdOnly) {
  const BoardShape shape = tiny(2);
  BoardMemory memory(shape);
  Board leader(memory.get(), shape, 0);
  Board other(memory.get(), shape, 1);
  other.publish_count(3, CountWord{7, 41});
  EXPECT_EQ(leader.count(1, 3), (CountWord{7, 41}));
  EXPECT_EQ(leader.count(1, 2), CountWord{});
  EXPECT_EQ(leader.count(0, 3), CountWord{});
  EXPECT_EQ(leader.doorbell(1), 1u);
  EXPECT_EQ(leader.doorbell(0), 0u);
  other.publish_count(3, CountWord{8, 1});
  EXPECT_EQ(leader.count(1, 3), (CountWord{8, 1}));
  EXPECT_EQ(leader.doorbell(1), 2u);
}

TEST(Board, MessagesOfEveryLengthPassATinyRing) {
  const BoardShape shape = tiny(2);
  BoardMemory memory(shape);
  Board leader(memory.get(), shape, 0);
  Board rank(memory.get(), shape, 1);
  for (std::size_t size = 0; size < 300; ++size) {
    const Bytes message = pattern(size, static_cast<std::uint32_t>(size));
    Bytes received = pattern(5, 99);
    bool posted = rank.post(message);
    bool complete = leader.receive(1, received);
    while (!complete) {
      ASSERT_FALSE(posted);
      posted = rank.post(message);
      complete = leader.receive(1, received);
    }
    EXPECT_TRUE(posted);
    EXPECT_EQ(received, message);
    EXPECT_FALSE(leader.receive(1, received));
  }
}

TEST(Board, AFullMessageRingRefusesAndLosesNothing) {
  const BoardShape shape = tiny(2);
  BoardMemory memory(shape);
  Board leader(memory.get(), shape, 0);
  Board rank(memory.get(), shape, 1);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(rank.post(pattern(12, i)));  // four frames of 16 bytes
  const std::uint64_t bells = leader.doorbell(1);
  EXPECT_FALSE(rank.post(pattern(1, 4)));
  EXPECT_EQ(leader.doorbell(1), bells);
  Bytes message;
  ASSERT_TRUE(leader.receive(1, message));
  EXPECT_EQ(message, pattern(12, 0));
  EXPECT_TRUE(rank.post(pattern(4, 7)));  // another than the refused one: of that nothing was written
  for (std::uint32_t i = 1; i < 4; ++i) {
    ASSERT_TRUE(leader.receive(1, message));
    EXPECT_EQ(message, pattern(12, i));
  }
  ASSERT_TRUE(leader.receive(1, message));
  EXPECT_EQ(message, pattern(4, 7));
}

TEST(Board, TheLogWaitsForItsSlowestReader) {
  const BoardShape shape = tiny(3);
  BoardMemory memory(shape);
  Board leader(memory.get(), shape, 0);
  Board quick(memory.get(), shape, 1);
  Board slow(memory.get(), shape, 2);
  Bytes entry;
  EXPECT_FALSE(quick.has_log_entry());
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(leader.append_log(pattern(12, i)));
    for (Board* reader : {&leader, &quick}) {
      ASSERT_TRUE(reader->has_log_entry());
      ASSERT_TRUE(reader->next_log_entry(entry));
      EXPECT_EQ(entry, pattern(12, i));
    }
  }
  EXPECT_FALSE(quick.has_log_entry());
  EXPECT_FALSE(leader.append_log(pattern(12, 4)));
  EXPECT_EQ(leader.laggard(), 2);
  for (std::uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(slow.next_log_entry(entry));
    EXPECT_EQ(entry, pattern(12, i));
    EXPECT_TRUE(leader.append_log(pattern(12, 4 + i)));
  }
  for (Board* reader : {&leader, &quick, &slow}) {
    for (std::uint32_t i = 4; i < 8; ++i) {
      ASSERT_TRUE(reader->next_log_entry(entry));
      EXPECT_EQ(entry, pattern(12, i));
    }
    EXPECT_FALSE(reader->next_log_entry(entry));
  }
}

TEST(Board, TheLogDoesNotWaitForAReaderThatIsGone) {
  const BoardShape shape = tiny(3);
  BoardMemory memory(shape);
  Board leader(memory.get(), shape, 0);
  Board reader(memory.get(), shape, 1);
  Bytes entry;
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(leader.append_log(pattern(12, i)));
    ASSERT_TRUE(leader.next_log_entry(entry));
  }
  EXPECT_FALSE(leader.append_log(pattern(12, 4)));
  leader.forget_reader(2);
  EXPECT_EQ(leader.laggard(), 1);
  EXPECT_FALSE(leader.append_log(pattern(12, 4))) << "rank 1 has not read yet";
  for (std::uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(reader.next_log_entry(entry));
  EXPECT_TRUE(leader.append_log(pattern(12, 4)));
  ASSERT_TRUE(reader.next_log_entry(entry));
  EXPECT_EQ(entry, pattern(12, 4));
}

TEST(Board, ARankSeesWhetherItsLeaderTakesItsMessages) {
  const BoardShape shape = tiny(2);
  BoardMemory memory(shape);
  Board leader(memory.get(), shape, 0);
  Board rank(memory.get(), shape, 1);
  EXPECT_FALSE(rank.has_unread_messages());
  EXPECT_TRUE(rank.post(pattern(12, 1)));
  EXPECT_TRUE(rank.has_unread_messages());
  Bytes message;
  EXPECT_TRUE(leader.receive(1, message));
  EXPECT_FALSE(rank.has_unread_messages());
}

TEST(Board, ALogEntryLargerThanTheRingGoesThroughInParts) {
  const BoardShape shape = tiny(2);
  BoardMemory memory(shape);
  Board leader(memory.get(), shape, 0);
  Board rank(memory.get(), shape, 1);
  const Bytes large = pattern(1000, 1);
  Bytes got[2];
  bool appended = false;
  int calls = 0;
  bool complete[2] = {false, false};
  while (!complete[0] || !complete[1]) {
    if (!appended) appended = leader.append_log(large);
    complete[0] = complete[0] || leader.next_log_entry(got[0]);
    complete[1] = complete[1] || rank.next_log_entry(got[1]);
    ASSERT_LT(++calls, 100);
  }
  EXPECT_TRUE(appended);
  EXPECT_EQ(got[0], large);
  EXPECT_EQ(got[1], large);
  EXPECT_FALSE(rank.has_log_entry());
}

std::string refusal_of(std::uint64_t position, std::uint64_t end, std::uint32_t word) {
  alignas(64) std::byte memory[64] = {};
  std::memcpy(memory + position % sizeof memory / 8 * 8, &word, sizeof word);
  PartReader reader;
  Bytes message;
  try {
    EXPECT_FALSE(reader.read(ByteRing(memory, sizeof memory), position, end, message));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    return error.status().message();
  }
  return "nothing";
}

/// Whatever another process has written into its memory.
TEST(ByteRing, RefusesWhatNoWriterWrites) {
  const std::string begin = "a control message is not valid: ";
  EXPECT_EQ(refusal_of(0, 16, 13), begin + "a frame is longer than it can be") << "a quarter of the ring, less a word";
  EXPECT_EQ(refusal_of(56, 64, 5), begin + "a frame is longer than it can be") << "longer than what is there";
  EXPECT_EQ(refusal_of(0, 4, 4), begin + "a frame is longer than it can be");
  EXPECT_EQ(refusal_of(0, 72, 4), begin + "a ring holds more than its bytes");
  EXPECT_EQ(refusal_of(8, 0, 4), begin + "a ring holds more than its bytes");
  EXPECT_EQ(refusal_of(61, 64, 0), begin + "a ring holds more than its bytes");
}

TEST(Board, SleepIsMarkedByRank) {
  const BoardShape shape = tiny(2);
  BoardMemory memory(shape);
  Board a(memory.get(), shape, 0);
  Board b(memory.get(), shape, 1);
  EXPECT_FALSE(a.asleep(1));
  b.mark_asleep();
  EXPECT_TRUE(a.asleep(1));
  EXPECT_FALSE(a.asleep(0));
  b.mark_awake();
  EXPECT_FALSE(a.asleep(1));
}

TEST(BoardDeath, AnIdBeyondTheBoardIsABug) {
  const BoardShape shape = tiny(1);
  BoardMemory memory(shape);
  Board board(memory.get(), shape, 0);
  EXPECT_DEATH(board.publish_count(8, {}), "id 8 on a board of 8");
}

// All at once, each rank a thread: counts never run ahead of what was written before them, messages and entries arrive
// whole, in order, once.
class BoardStress : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;
  static constexpr std::uint32_t kRounds = 3000;
  static std::size_t length(std::uint32_t i) { return (i * 37) % 150; }

  static void rank_body(Board& board, std::vector<std::uint32_t>& plain) {
    std::uint32_t posted = 0, read = 0, counted = 0;
    Bytes entry;
    while (posted < kRounds || read < kRounds || counted < kRounds) {
      bool moved = false;
      if (posted < kRounds && board.post(pattern(length(posted), posted))) ++posted, moved = true;
      if (board.next_log_entry(entry)) {
        ASSERT_EQ(entry, pattern(length(read), read + 1000000));
        ++read, moved = true;
      }
      if (counted < kRounds) {
        plain[counted] = counted + 1;  // must be visible to who sees the count
        board.publish_count(5, CountWord{1, ++counted}), moved = true;
      }
      if (!moved) std::this_thread::yield();
    }
  }
};

TEST_F(BoardStress, ThreadsSeeEverythingOnceAndInOrder) {
  BoardShape shape = tiny(kRanks);
  shape.message_ring_bytes = 192;
  shape.log_ring_bytes = 320;
  BoardMemory memory(shape);
  std::vector<std::vector<std::uint32_t>> plain(kRanks, std::vector<std::uint32_t>(kRounds));
  std::vector<std::thread> threads;
  for (int r = 1; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      Board board(memory.get(), shape, r);
      rank_body(board, plain[static_cast<std::size_t>(r)]);
    });
  }
  Board leader(memory.get(), shape, 0);
  std::uint32_t received[kRanks] = {}, appended = 0, read = 0;
  std::uint64_t counts[kRanks] = {};
  Bytes bytes;
  bool all = false;
  while (!all) {
    all = appended == kRounds && read == kRounds;
    if (appended < kRounds && leader.append_log(pattern(length(appended), appended + 1000000))) ++appended;
    if (leader.next_log_entry(bytes)) ++read;
    for (int r = 1; r < kRanks; ++r) {
      if (leader.receive(r, bytes)) {
        ASSERT_EQ(bytes, pattern(length(received[r]), received[r]));
        ++received[r];
      }
      const std::uint64_t count = leader.count(r, 5).count;
      ASSERT_GE(count, counts[r]);
      for (; counts[r] < count; ++counts[r]) ASSERT_EQ(plain[static_cast<std::size_t>(r)][counts[r]], counts[r] + 1);
      all = all && received[r] == kRounds && counts[r] == kRounds;
    }
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  for (int r = 1; r < kRanks; ++r) EXPECT_GE(leader.doorbell(r), 2 * kRounds);
}

}  // namespace
}  // namespace kolo::control
