// SPDX-License-Identifier: Apache-2.0
//
// The board's memory order between real processes: what a thread sanitizer cannot see, and a fence forgotten would
// break.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/cpu.hpp"
#include "bootstrap/handover.hpp"
#include "control/board.hpp"
#include "core/topology.hpp"
#include "tests/support/meeting.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::control::test {
namespace {

constexpr int kLostWakeupMs = 20000;

BoardShape small_board(int ranks) {
  BoardShape shape;
  shape.ranks = ranks;
  shape.ids = 64;
  shape.message_ring_bytes = 256;
  shape.log_ring_bytes = 320;
  return shape;
}

/// Numbers that follow from one another: a message's length and contents follow from its number.
Bytes numbered(std::uint64_t number) {
  Bytes bytes(number * 37 % 120);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(number * 131 + i * 7);
  return bytes;
}

/// One rank's engine, as far as sleeping is concerned.
class Sleeper {
 public:
  Sleeper(Board& board, transport::NodeLink& link, std::uint32_t seed) : board_(board), link_(link), random_(seed) {}

  /// Lets a little time pass, a different one each time.
  void hesitate() {
    for (std::uint32_t left = random_() % 16; left > 0; --left) base::cpu_relax();
  }
  /// Sleeps until `ready()`; asks it again after each mark.
  template <class Ready>
  void sleep_until(Ready&& ready) {
    hesitate();
    while (!::testing::Test::HasFatalFailure()) {
      board_.mark_asleep();
      const bool is_ready = ready();
      ASSERT_TRUE(is_ready || testing::is_readable(link_.wake_fd(), kLostWakeupMs)) << "a wake-up was lost";
      board_.mark_awake();
      std::uint64_t count = 0;
      EXPECT_TRUE(::read(link_.wake_fd(), &count, sizeof count) > 0 || errno == EAGAIN);
      if (is_ready) return;
    }
  }
  void wake(int local_rank) {
    if (board_.asleep(local_rank)) link_.wake(local_rank);
  }

 private:
  Board& board_;
  transport::NodeLink& link_;
  std::mt19937 random_;
};

struct Member {
  explicit Member(bootstrap::Bootstrap& bootstrap)
      : topology(test_support::topology_on_one_machine(bootstrap)), shape(small_board(topology.size)),
        link(bootstrap::join_node(bootstrap, topology, shape.bytes(), "a key")),
        board(link->memory(), shape, topology.rank),
        sleeper(board, *link, static_cast<std::uint32_t>(topology.rank) + 1) {}
  core::Topology topology;
  BoardShape shape;
  std::shared_ptr<transport::NodeLink> link;
  Board board;
  Sleeper sleeper;
};

/// Rounds in which one side goes to sleep while the other, which has just heard from it, publishes: at about the same
/// time, so that each may still hold its store back from the other when it looks.
class Duel {
 public:
  static constexpr std::uint64_t kRounds = kolo::testing::unless_sanitized(200000, 20000);

  Duel(Member& self, bool leader_sleeps) : self_(self), is_sleeper_((self.topology.rank == 0) == leader_sleeps) {}

  void run() {
    for (std::uint64_t round = 1; round <= kRounds && !::testing::Test::HasFatalFailure(); ++round) {
      if (is_sleeper_) {
        say();
        self_.sleeper.sleep_until([&] { return heard(); });
        take();
      } else {
        for (int looks = 1; !heard(); ++looks) looks % 1024 == 0 ? std::this_thread::yield() : base::cpu_relax();
        take();
        self_.sleeper.hesitate();
        say();
        self_.sleeper.wake(1 - self_.topology.rank);
      }
    }
  }

 private:
  void say() {
    if (self_.topology.rank == 0) {
      ASSERT_TRUE(self_.board.append_log(numbered(1)));
      ASSERT_TRUE(self_.board.next_log_entry(entry_));  // the leader reads it like everybody
    } else {
      self_.board.publish_count(7, CountWord{3, ++said_});
    }
  }
  bool heard() const {
    return self_.topology.rank == 0 ? self_.board.doorbell(1) != taken_ : self_.board.has_log_entry();
  }
  void take() {
    if (self_.topology.rank == 0) {
      ASSERT_EQ(self_.board.count(1, 7).count, ++taken_);
    } else {
      ASSERT_TRUE(self_.board.next_log_entry(entry_));
      ASSERT_EQ(entry_, numbered(1));
    }
  }

  Member& self_;
  bool is_sleeper_;
  std::uint64_t said_ = 0;
  std::uint64_t taken_ = 0;
  Bytes entry_;
};

TEST(BoardProcesses, NoWakeUpIsLost) {
  for (const bool leader_sleeps : {true, false}) {
    const std::vector<int> statuses = testing::run_processes(2, [&](bootstrap::Bootstrap& bootstrap) {
      Member self(bootstrap);
      Duel(self, leader_sleeps).run();
      test_support::meet(bootstrap);
    });
    EXPECT_EQ(statuses, std::vector<int>(2, 0)) << (leader_sleeps ? "the leader sleeps" : "the other sleeps");
  }
}

/// The leader: takes in everything and answers each message by a log entry, sleeping whenever there is nothing.
void lead(Member& self, std::uint64_t rounds) {
  const int ranks = self.topology.size;
  std::vector<std::uint64_t> received(static_cast<std::size_t>(ranks)), bells(received), counts(received);
  std::uint64_t to_append = 0, appended = 0, read = 0;
  const std::uint64_t total = rounds * static_cast<std::uint64_t>(ranks - 1);
  Bytes bytes;
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
    self.sleeper.sleep_until([&] {
      for (int r = 1; r < ranks; ++r)
        if (self.board.doorbell(r) != bells[static_cast<std::size_t>(r)]) return true;
      return self.board.has_log_entry();
    });
  }
  for (int r = 1; r < ranks; ++r) EXPECT_EQ(self.board.count(r, 9), (CountWord{1, rounds}));
}

void follow(Member& self, std::uint64_t rounds) {
  const std::uint64_t total = rounds * static_cast<std::uint64_t>(self.topology.size - 1);
  std::uint64_t posted = 0, read = 0;
  Bytes bytes;
  while (read < total && !::testing::Test::HasFatalFailure()) {
    bool moved = false;
    if (posted < rounds && self.board.post(numbered(posted))) {
      self.board.publish_count(9, CountWord{1, ++posted});
      moved = true;
    }
    self.sleeper.wake(0);
    while (self.board.next_log_entry(bytes)) {
      ASSERT_EQ(bytes, numbered(read++));
      moved = true;
    }
    if (moved || posted < rounds || read == total) continue;  // a full ring is owed work: no sleep
    self.sleeper.sleep_until([&] { return self.board.has_log_entry(); });
  }
}

TEST(BoardProcesses, MessagesCountsAndLogArriveWholeOnceAndInOrder) {
  constexpr std::uint64_t kRounds = kolo::testing::unless_sanitized(50000, 5000);
  const std::vector<int> statuses = testing::run_processes(3, [&](bootstrap::Bootstrap& bootstrap) {
    Member self(bootstrap);
    self.topology.rank == 0 ? lead(self, kRounds) : follow(self, kRounds);
    test_support::meet(bootstrap);
  });
  EXPECT_EQ(statuses, std::vector<int>(3, 0));
}

}  // namespace
}  // namespace kolo::control::test
