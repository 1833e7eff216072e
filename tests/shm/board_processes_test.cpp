// SPDX-License-Identifier: Apache-2.0
//
// The board's memory order between real processes: what a thread sanitizer cannot see, and a fence forgotten would break.
#include <gtest/gtest.h>

#include <random>

#include "core/board.hpp"
#include "core/topology.hpp"
#include "processes.hpp"
#include "shm/handover.hpp"

namespace kolo::shm::test {
namespace {

constexpr int kLostWakeupMs = 20000;

core::BoardShape small_board(int ranks) {
  core::BoardShape shape;
  shape.ranks = ranks;
  shape.ids = 64;
  shape.message_ring_bytes = 256;
  shape.log_ring_bytes = 320;
  return shape;
}

/// Numbers that follow from one another: a message's length and contents follow from its number.
core::Bytes numbered(std::uint64_t number) {
  core::Bytes bytes(number * 37 % 120);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(number * 131 + i * 7);
  return bytes;
}

/// One rank's engine, as far as sleeping is concerned.
class Sleeper {
 public:
  Sleeper(core::Board& board, core::NodeLink& link, std::uint32_t seed) : board_(board), link_(link), random_(seed) {}

  /// Sleeps until woken, unless `ready()` says, after the announcement, that there is something to do.
  template <class Ready>
  void sleep_unless(Ready&& ready) {
    // Come to the announcement at any distance from the publisher's store.
    for (std::uint32_t spin = random_() % 64; spin > 0; --spin)
      if (ready()) return;
    board_.announce_sleep();
    if (!ready()) {
      ASSERT_TRUE(is_readable(link_.wake_fd(), kLostWakeupMs)) << "a wake-up was lost";
      ++slept_;
    }
    board_.announce_awake();
    std::uint64_t count = 0;
    EXPECT_TRUE(::read(link_.wake_fd(), &count, sizeof count) > 0 || errno == EAGAIN);
  }
  void wake(int local_rank) {
    if (board_.asleep(local_rank)) link_.wake(local_rank);
  }
  [[nodiscard]] std::uint64_t slept() const { return slept_; }

 private:
  core::Board& board_;
  core::NodeLink& link_;
  std::mt19937 random_;
  std::uint64_t slept_ = 0;
};

struct Member {
  explicit Member(core::Bootstrap& bootstrap)
      : topology(core::make_topology(bootstrap.rank(), bootstrap.machines(), 0)), shape(small_board(topology.size)),
        link(join_node(bootstrap, topology, shape.bytes(), "a key")), board(link->memory(), shape, topology.rank),
        sleeper(board, *link, static_cast<std::uint32_t>(topology.rank) + 1) {}
  core::Topology topology;
  core::BoardShape shape;
  std::shared_ptr<core::NodeLink> link;
  core::Board board;
  Sleeper sleeper;
};

TEST(BoardProcesses, NoWakeUpIsLost) {
  constexpr std::uint64_t kRounds = 200000;
  const std::vector<int> statuses = run_processes(2, [&](core::Bootstrap& bootstrap) {
    Member self(bootstrap);
    core::Bytes entry;
    for (std::uint64_t round = 1; round <= kRounds && !::testing::Test::HasFatalFailure(); ++round) {
      if (self.topology.rank == 1) {
        self.board.publish_count(7, core::CountWord{3, round});
        self.sleeper.wake(0);
        while (!self.board.next_log_entry(entry) && !::testing::Test::HasFatalFailure())
          self.sleeper.sleep_unless([&] { return self.board.has_log_entry(); });
      } else {
        while (self.board.doorbell(1) < round && !::testing::Test::HasFatalFailure())
          self.sleeper.sleep_unless([&] { return self.board.doorbell(1) == round; });
        ASSERT_EQ(self.board.count(1, 7), (core::CountWord{3, round}));
        ASSERT_TRUE(self.board.append_log(numbered(1)));
        self.sleeper.wake(1);
        ASSERT_TRUE(self.board.next_log_entry(entry));
      }
    }
    EXPECT_GT(self.sleeper.slept(), 0u);
    bootstrap.allgather("");
  });
  EXPECT_EQ(statuses, std::vector<int>(2, 0));
}

/// The leader: takes in everything and answers each message by a log entry, sleeping whenever there is nothing.
void lead(Member& self, std::uint64_t rounds) {
  const int ranks = self.topology.size;
  std::vector<std::uint64_t> received(static_cast<std::size_t>(ranks)), bells(received), counts(received);
  std::uint64_t to_append = 0, appended = 0, read = 0;
  const std::uint64_t total = rounds * static_cast<std::uint64_t>(ranks - 1);
  core::Bytes bytes;
  while (read < total && !::testing::Test::HasFatalFailure()) {
    bool moved = false;
    for (int r = 1; r < ranks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      bells[i] = self.board.doorbell(r);
      while (self.board.receive(r, bytes)) {
        ASSERT_EQ(bytes, numbered(received[i]++));
        ++to_append;
        moved = true;
      }
      const std::uint64_t count = self.board.count(r, 9).count;
      ASSERT_GE(count, counts[i]);
      counts[i] = count;
    }
    while (appended < to_append && self.board.append_log(numbered(appended))) {
      ++appended;
      moved = true;
    }
    if (appended < to_append || moved)
      for (int r = 1; r < ranks; ++r) self.sleeper.wake(r);
    while (self.board.next_log_entry(bytes)) {
      ASSERT_EQ(bytes, numbered(read++));
      moved = true;
    }
    if (moved || appended < to_append || read == total) continue;  // a full log is owed work: no sleep
    self.sleeper.sleep_unless([&] {
      for (int r = 1; r < ranks; ++r)
        if (self.board.doorbell(r) != bells[static_cast<std::size_t>(r)]) return true;
      return self.board.has_log_entry();
    });
  }
  for (int r = 1; r < ranks; ++r) EXPECT_EQ(self.board.count(r, 9), (core::CountWord{1, rounds}));
}

void follow(Member& self, std::uint64_t rounds) {
  const std::uint64_t total = rounds * static_cast<std::uint64_t>(self.topology.size - 1);
  std::uint64_t posted = 0, read = 0;
  core::Bytes bytes;
  while (read < total && !::testing::Test::HasFatalFailure()) {
    bool moved = false;
    if (posted < rounds && self.board.post(numbered(posted))) {
      self.board.publish_count(9, core::CountWord{1, ++posted});
      moved = true;
    }
    self.sleeper.wake(0);
    while (self.board.next_log_entry(bytes)) {
      ASSERT_EQ(bytes, numbered(read++));
      moved = true;
    }
    if (moved || posted < rounds || read == total) continue;  // a full ring is owed work: no sleep
    self.sleeper.sleep_unless([&] { return self.board.has_log_entry(); });
  }
}

TEST(BoardProcesses, MessagesCountsAndLogArriveWholeOnceAndInOrder) {
  constexpr std::uint64_t kRounds = 50000;
  const std::vector<int> statuses = run_processes(3, [&](core::Bootstrap& bootstrap) {
    Member self(bootstrap);
    self.topology.rank == 0 ? lead(self, kRounds) : follow(self, kRounds);
    bootstrap.allgather("");
  });
  EXPECT_EQ(statuses, std::vector<int>(3, 0));
}

}  // namespace
}  // namespace kolo::shm::test
