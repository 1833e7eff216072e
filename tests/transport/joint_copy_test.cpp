// SPDX-License-Identifier: Apache-2.0
//
// Copies that a reader and an owner make together: that each byte is copied once, by either; that what the owner cannot
// write comes back; and that an owner writes nothing after the reader has given up, wherever it was stopped.
#include "transport/joint_copy.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/topology.hpp"
#include "tests/support/meeting.hpp"
#include "tests/support/processes.hpp"
#include "transport/shm/peer_memory.hpp"

namespace kolo::transport {
namespace {

using Help = JointCopy::Help;
using Revoked = JointCopy::Revoked;

const std::size_t kSizes[] = {1, 4096, 16384, 16385, 100000, 1 << 20, (9 << 20) + 7};

/// Writes as the system does: what the target says when the call reaches it.
class Memory final : public PeerMemory {
 public:
  Status read(int, void*, const void*, std::size_t) override { return {ErrorCode::transport, "not used"}; }
  Status write(int, const Target& target, const void* from, std::size_t bytes) override {
    if (before_system) before_system(target);
    const std::size_t wanted = target.bytes.load();
    if (wanted > 0 && !fails) std::memcpy(reinterpret_cast<void*>(target.address.load()), from, wanted);
    if (in_system) in_system(target);
    return !fails && wanted == bytes ? Status() : Status(ErrorCode::transport, "not all was written");
  }
  [[nodiscard]] bool sees_writers() const noexcept override { return true; }
  [[nodiscard]] bool may_be_writing(int, int) const noexcept override { return runs.load(); }
  [[nodiscard]] bool reads_by_system() const noexcept override { return true; }

  std::function<void(const Target&)> before_system, in_system;
  bool fails = false;
  std::atomic<bool> runs{true};
};

std::vector<std::byte> numbered(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 4096 + 1);
  return data;
}

auto at(const std::vector<std::byte>& from) {
  return [&from](const JointCopy::Piece& piece) { return from.data() + piece.begin; };
}

/// Reads all that is left; how many pieces.
int read_all(JointCopy& copy, const std::vector<std::byte>& from, std::vector<std::byte>& to) {
  int pieces = 0;
  for (JointCopy::Piece piece = copy.take(); piece.bytes > 0; piece = copy.take()) {
    std::memcpy(to.data() + piece.begin, from.data() + piece.begin, piece.bytes);
    ++pieces;
  }
  return pieces;
}

TEST(JointCopy, EitherMayCopyAll) {
  for (const std::size_t bytes : kSizes) {
    for (const bool owner : {false, true}) {
      JointCopy copy{};
      Memory memory;
      const std::vector<std::byte> from = numbered(bytes);
      std::vector<std::byte> to(bytes);
      const JointCopy::Number number = copy.open(to.data(), bytes);
      ASSERT_NE(number, 0U);
      while (owner && copy.help(memory, 0, number, at(from)) == Help::wrote) {
      }
      EXPECT_EQ(read_all(copy, from, to) == 0, owner);
      EXPECT_TRUE(copy.is_idle());
      EXPECT_EQ(to, from) << bytes;
      EXPECT_EQ(copy.help(memory, 0, number, at(from)), Help::none);
      EXPECT_EQ(copy.revoke(memory, 0), Revoked::free) << "which costs nothing when it is over";
    }
  }
}

/// The first piece ends at a page of the reader's, wherever it begins, and no piece cuts an element. A third of the
/// pieces that are left is taken.
TEST(JointCopy, PiecesBeginAtPages) {
  constexpr std::size_t kBytes = (1 << 20) + 48, kPiece = 68 << 10, kPage = 4096;
  std::vector<std::byte> memory(kBytes + 2 * kPage);
  std::byte* const page = memory.data() + (kPage - reinterpret_cast<std::uintptr_t>(memory.data()) % kPage);
  for (const std::size_t off : {0, 16, 64, 4080, 8, 100}) {
    JointCopy copy{};
    ASSERT_NE(copy.open(page + off, kBytes), 0U);
    const std::size_t shift = off % 16 == 0 ? off : 0;
    std::size_t end = 0;
    for (JointCopy::Piece piece = copy.take(); piece.bytes > 0; piece = copy.take()) {
      EXPECT_EQ(piece.begin, end) << off;
      const std::size_t left = (shift + kBytes - (end + (end > 0 ? shift : 0)) + kPiece - 1) / kPiece;
      const std::size_t pieces = std::max<std::size_t>(left / 3, 1);
      end = piece.begin + piece.bytes;
      if (end == kBytes) break;
      EXPECT_EQ((shift + end) % kPiece, 0U) << off;
      EXPECT_EQ(piece.bytes, pieces * kPiece - (piece.begin == 0 ? shift : 0)) << off << ", " << piece.begin;
    }
    EXPECT_EQ(end, kBytes);
    EXPECT_EQ(copy.take().bytes, 0U);
  }
}

/// The state lies in memory that other processes write. What they have made of it is no reason to end.
TEST(JointCopy, AStateThatMakesNoSenseIsSurvived) {
  constexpr std::size_t kBytes = 100000;
  const std::vector<std::byte> from = numbered(kBytes);
  std::vector<std::byte> to(kBytes);
  Memory memory;
  memory.fails = true;
  for (const unsigned char fill : {0x00, 0x01, 0x7f, 0xff}) {
    for (std::size_t field = 1; field < 4; ++field) {  // behind the word that both change
      JointCopy copy{};
      const JointCopy::Number number = copy.open(to.data(), kBytes);
      std::memset(reinterpret_cast<std::byte*>(&copy) + 8 * field, fill, 8);
      const auto data_of = [&](const JointCopy::Piece& piece) {
        return is_within(piece, kBytes) ? from.data() + piece.begin : nullptr;
      };
      EXPECT_EQ(copy.help(memory, 0, number, data_of), Help::failed);
      static_cast<void>(copy.take());  // the reader asks likewise whether the piece lies within
      EXPECT_TRUE(copy.is_idle());
    }
  }
}

TEST(JointCopy, BothCopyAtOnce) {
  constexpr std::size_t kBytes = (2 << 20) + 12345;
  const std::vector<std::byte> from = numbered(kBytes);
  JointCopy copy{};
  Memory memory;
  std::atomic<std::uint64_t> told{0};  // the round, and the number
  std::atomic<std::uint64_t> written{0};
  constexpr std::uint64_t kRounds = 40;
  std::thread owner([&] {
    for (;;) {
      const std::uint64_t said = told.load();
      if (copy.help(memory, 0, static_cast<JointCopy::Number>(said), at(from)) == Help::wrote) {
        ++written;
      } else if (said >> 32 == kRounds) {
        return;
      }
      std::this_thread::yield();
    }
  });
  std::uint64_t read = 0;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    std::vector<std::byte> to(kBytes);
    told = round << 32 | copy.open(to.data(), kBytes);
    for (;;) {
      const JointCopy::Piece piece = copy.take();
      if (piece.bytes == 0 && copy.is_idle()) break;
      if (piece.bytes == 0) continue;
      std::memcpy(to.data() + piece.begin, from.data() + piece.begin, piece.bytes);
      ++read;
      std::this_thread::yield();
    }
    ASSERT_EQ(to, from) << "round " << round;
  }
  owner.join();
  EXPECT_GT(read, 0U);
  EXPECT_GT(written.load(), 0U);
}

TEST(JointCopy, WhoHasAnOldNumberTakesNothing) {
  JointCopy copy{};
  Memory memory;
  const std::vector<std::byte> from = numbered(50000);
  std::vector<std::byte> first(50000), second(50000);
  const JointCopy::Number old = copy.open(first.data(), first.size());
  ASSERT_EQ(copy.revoke(memory, 0), Revoked::free);
  const JointCopy::Number number = copy.open(second.data(), second.size());
  EXPECT_NE(number, old);
  EXPECT_EQ(copy.help(memory, 0, old, at(from)), Help::none);
  EXPECT_EQ(copy.help(memory, 0, number, at(from)), Help::wrote);
  EXPECT_EQ(first, std::vector<std::byte>(50000));
}

TEST(JointCopy, WhatTheOwnerCannotWriteComesBack) {
  JointCopy copy{};
  Memory memory;
  memory.fails = true;
  const std::vector<std::byte> from = numbered(100000);
  std::vector<std::byte> to(from.size());
  const JointCopy::Number number = copy.open(to.data(), to.size());
  memory.before_system = [&](const PeerMemory::Target&) {
    read_all(copy, from, to);
    EXPECT_FALSE(copy.is_idle());
    EXPECT_NE(to, from);
  };
  EXPECT_EQ(copy.help(memory, 0, number, at(from)), Help::failed);
  EXPECT_TRUE(copy.is_idle());
  EXPECT_GT(read_all(copy, from, to), 0);
  EXPECT_EQ(to, from);
}

/// The owner is held up before its call of the system, and the reader revokes meanwhile.
TEST(JointCopy, AnOwnerThatIsStoppedBeforeItWritesWritesNothing) {
  for (const bool runs : {true, false}) {
    JointCopy copy{};
    Memory memory;
    memory.runs = runs;
    const std::vector<std::byte> from = numbered(1 << 20);
    std::vector<std::byte> to(from.size());
    const JointCopy::Number number = copy.open(to.data(), to.size());
    std::atomic<bool> returned{false};
    bool is_free = false;
    std::thread reader;
    memory.before_system = [&](const PeerMemory::Target& target) {
      reader = std::thread([&] {
        is_free = copy.revoke(memory, 0) == Revoked::free;
        returned = true;
      });
      if (!runs) {
        reader.join();  // it does not wait for who has stopped
        EXPECT_FALSE(is_free) << "the owner still has the state";
      }
      while (target.bytes.load() != 0) std::this_thread::yield();
    };
    EXPECT_EQ(copy.help(memory, 0, number, at(from)), Help::none);
    if (runs) reader.join();
    EXPECT_EQ(is_free, runs);
    EXPECT_EQ(to, std::vector<std::byte>(from.size()));
  }
}

TEST(JointCopy, AReaderThatGivesUpWaitsForThePieceThatIsBeingWritten) {
  JointCopy copy{};
  Memory memory;
  const std::vector<std::byte> from = numbered(1 << 20);
  std::vector<std::byte> to(from.size());
  const JointCopy::Number number = copy.open(to.data(), to.size());
  std::atomic<bool> writes{true};
  std::thread reader;
  memory.in_system = [&](const PeerMemory::Target& target) {
    reader = std::thread([&] {
      EXPECT_EQ(copy.revoke(memory, 0), Revoked::free);
      EXPECT_FALSE(writes.load()) << "its caller may use the memory now";
    });
    while (target.bytes.load() > 0) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    writes = false;
  };
  EXPECT_EQ(copy.help(memory, 0, number, at(from)), Help::none);
  reader.join();
}

/// As one that waits for a disk that does not answer.
TEST(JointCopy, AReaderDoesNotWaitForEverForAPiece) {
  JointCopy copy{};
  Memory memory;
  const std::vector<std::byte> from = numbered(1 << 20);
  std::vector<std::byte> to(from.size());
  const JointCopy::Number number = copy.open(to.data(), to.size());
  memory.before_system = [&](const PeerMemory::Target&) {
    EXPECT_EQ(copy.revoke(memory, 0, std::chrono::milliseconds(1)), Revoked::unsafe);
  };
  EXPECT_EQ(copy.help(memory, 0, number, at(from)), Help::none);
  EXPECT_EQ(to, std::vector<std::byte>(to.size())) << "this one had not reached the system";
}

/// Processes. The reader stops the owner at any moment, gives up, uses its memory for something else, and lets the
/// owner go on.
TEST(JointCopy, AnOwnerThatIsStoppedAtAnyMomentWritesNothingAfterwards) {
  constexpr std::size_t kBytes = 2 << 20;
  constexpr int kStates = 80;
  struct Shared {
    std::atomic<std::uint32_t> told;    // which state, from 1 on; and all is over
    std::atomic<std::uint32_t> helped;  // calls
    JointCopy copies[kStates];
  };
  constexpr std::uint32_t kOver = ~0U;
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& shared = *static_cast<Shared*>(memory);
  const std::vector<int> statuses = testing::run_processes(2, [&](bootstrap::Bootstrap& bootstrap) {
    const core::Topology topology = test_support::topology_on_one_machine(bootstrap);
    const auto meet = [&](const std::string& mine) { return test_support::meet(bootstrap, mine); };
    const auto peers = shm::read_between_processes(topology, meet);
    ASSERT_NE(peers, nullptr);
    const auto owner = static_cast<pid_t>(std::stol(meet(std::to_string(::getpid()))[1]));
    if (bootstrap.rank() == 1) {
      const std::vector<std::byte> from(kBytes, std::byte{0x5A});
      for (std::uint32_t told = 0; told != kOver; told = shared.told.load()) {
        if (told == 0) continue;
        // The first copy of a state has number 1.
        while (shared.copies[told - 1].help(*peers, 0, 1, at(from)) == Help::wrote) ++shared.helped;
        ++shared.helped;
      }
      meet("");
      return;
    }
    int written = 0;
    int stopped_inside = 0;
    std::vector<std::byte> to(kBytes);
    for (std::uint32_t round = 1; round <= kStates; ++round) {
      std::fill(to.begin(), to.end(), std::byte{0});
      JointCopy& copy = shared.copies[round - 1];
      ASSERT_EQ(copy.open(to.data(), kBytes), 1U);
      shared.told = round;
      const std::uint32_t before = shared.helped.load();
      for (std::uint32_t i = 0; i < round * 50 && shared.helped.load() < before + 2; ++i) std::this_thread::yield();
      ASSERT_EQ(::kill(owner, SIGSTOP), 0);
      const Revoked revoked = copy.revoke(*peers, 1);
      ASSERT_NE(revoked, Revoked::unsafe) << round;
      if (revoked == Revoked::kept) ++stopped_inside;
      written += std::count(to.begin(), to.end(), std::byte{0x5A}) > 0 ? 1 : 0;
      std::fill(to.begin(), to.end(), std::byte{7});
      const std::uint32_t stopped_at = shared.helped.load();
      ASSERT_EQ(::kill(owner, SIGCONT), 0);
      while (shared.helped.load() < stopped_at + 2) std::this_thread::yield();
      ASSERT_EQ(std::count(to.begin(), to.end(), std::byte{7}), static_cast<std::ptrdiff_t>(kBytes)) << round;
    }
    shared.told = kOver;
    EXPECT_GT(written, 0) << "the owner never helped";
    ::testing::Test::RecordProperty("stopped_inside", stopped_inside);
    meet("");
  });
  EXPECT_EQ(statuses, std::vector<int>(2, 0));
  ::munmap(memory, sizeof(Shared));
}

}  // namespace
}  // namespace kolo::transport
