// SPDX-License-Identifier: Apache-2.0
//
// Inputs that their owner copies for a reader, piece by piece.
#include "engine/feeds.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace kolo::engine {
namespace {

using control::Express;

constexpr std::size_t kCapacity = 64 << 10;
constexpr std::size_t kPiece = 32 << 10;  // of long inputs
constexpr std::size_t kSlots = 4;
constexpr int kReader = 0;
constexpr int kOwner = 1;

class Pair {
 public:
  explicit Pair(std::size_t capacity = kCapacity) : column_(Express::column_bytes(capacity)) {
    memory_.reset(static_cast<std::byte*>(::operator new (2 * column_, std::align_val_t{4096})));
    std::memset(memory_.get(), 0, 2 * column_);
    const base::Columns columns = base::Columns::in_a_row(memory_.get(), column_, 2);
    for (int rank : {kReader, kOwner}) {
      express_[rank] = std::make_unique<Express>(columns, capacity, rank);
      feeds_[rank] = std::make_unique<Feeds>(*express_[rank]);
    }
  }

  /// Both begin a call, and have spoken.
  void begin() {
    for (int rank : {kReader, kOwner}) begin(rank);
    for (int rank : {kReader, kOwner}) ASSERT_EQ(express_[rank]->look(), Express::Verdict::together);
  }
  void begin(int rank) {
    express_[rank]->begin();
    express_[rank]->speak(1);
  }
  [[nodiscard]] Express& express(int rank) { return *express_[rank]; }
  [[nodiscard]] Feeds& feeds(int rank) { return *feeds_[rank]; }

  void give(const std::vector<std::byte>& input) { feeds(kOwner).feed(input.data(), input.size(), copy_); }
  /// The reader takes all that it gets, and appends it to `taken`.
  std::size_t take(std::size_t bytes, const Feeds::Await& await, std::vector<std::byte>& taken) {
    const auto append = [&](std::size_t begin, std::size_t now, const std::byte* data) {
      EXPECT_EQ(begin, taken.size());
      taken.insert(taken.end(), data, data + now);
      if (in_visit) in_visit(data, now);
    };
    return feeds(kReader).take(bytes, append, await);
  }

  /// The owner feeds whenever the reader waits: all arrives.
  void expect_all(const std::vector<std::byte>& input) {
    const auto feed = [&](const std::function<bool()>& there) {
      give(input);
      ASSERT_TRUE(there());
    };
    std::vector<std::byte> taken;
    EXPECT_EQ(take(input.size(), feed, taken), input.size());
    EXPECT_TRUE(taken == input);
  }

  std::function<void(const std::byte* data, std::size_t bytes)> in_visit;

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
  };
  const std::size_t column_;
  std::unique_ptr<std::byte, Free> memory_;
  std::unique_ptr<Express> express_[2];
  std::unique_ptr<Feeds> feeds_[2];
  kernels::PeerCopy copy_;
};

std::vector<std::byte> input_of(std::size_t bytes, int call) {
  std::vector<std::byte> input(bytes);
  for (std::size_t i = 0; i < bytes; ++i)  // no period
    input[i] = static_cast<std::byte>((i + static_cast<std::size_t>(call)) * 2654435761 >> 24);
  return input;
}

TEST(Feeds, BringEveryLengthBetweenTwoThreads) {
  Pair pair;
  const std::size_t lengths[] = {4, 16 << 10, 96 << 10, (128 << 10) + 4, 1 << 20, (5 << 20) + 60};
  constexpr int kCalls = 8;
  std::thread owner([&] {
    for (int call = 0; call < kCalls; ++call) {
      for (const std::size_t bytes : lengths) {
        const std::vector<std::byte> input = input_of(bytes, call);
        pair.begin(kOwner);
        while (pair.express(kOwner).look() == Express::Verdict::undecided) std::this_thread::yield();
        while (!pair.express(kOwner).has_finished(kReader)) pair.give(input);
      }
    }
  });
  const auto wait = [](const std::function<bool()>& there) {
    while (!there()) std::this_thread::yield();
  };
  for (int call = 0; call < kCalls; ++call) {
    for (const std::size_t bytes : lengths) {
      pair.begin(kReader);
      while (pair.express(kReader).look() == Express::Verdict::undecided) std::this_thread::yield();
      // On a busy machine the owner may have no turn for as long as the reader waits: then it has fed a part.
      std::vector<std::byte> taken;
      EXPECT_LE(pair.take(bytes, wait, taken), bytes);
      std::vector<std::byte> expected = input_of(bytes, call);
      expected.resize(taken.size());
      EXPECT_TRUE(taken == expected) << bytes << " bytes, call " << call;
      pair.express(kReader).finish();
    }
  }
  owner.join();
}

/// Whatever is visited stays until the visit is over, and no more than the slots is fed ahead.
TEST(Feeds, AreNotWrittenOver) {
  Pair pair;
  const std::vector<std::byte> input = input_of(20 * kPiece, 0);
  pair.begin();
  pair.in_visit = [&](const std::byte* data, std::size_t bytes) {
    const std::vector<std::byte> before(data, data + bytes);
    pair.give(input);
    EXPECT_EQ(std::memcmp(before.data(), data, bytes), 0);
  };
  pair.expect_all(input);
}

TEST(Feeds, AreNotWaitedForWhereTheOwnerDoesNotGoOn) {
  Pair pair;
  const std::vector<std::byte> input = input_of(20 * kPiece, 0);
  pair.begin();
  bool has_fed = false;
  const auto stop = [&](const std::function<bool()>& there) {
    if (!has_fed) pair.give(input);  // as many as there are slots, then it is stopped
    has_fed = true;
    while (!there()) std::this_thread::yield();
  };
  std::vector<std::byte> taken;
  EXPECT_EQ(pair.take(input.size(), stop, taken), kSlots * kPiece);
  // When it goes on it feeds what nobody takes, and the next call is as any other.
  pair.give(input);
  for (int call = 1; call < 4; ++call) {
    for (int rank : {kReader, kOwner}) pair.express(rank).finish();
    pair.begin();
    pair.expect_all(input_of(7 * kPiece + 64, call));
  }
}

TEST(Feeds, WhoIsNotAskedInThisCallWritesNothing) {
  Pair pair;
  const std::vector<std::byte> input = input_of(4 * kPiece, 0);
  pair.begin();
  pair.expect_all(input);
  pair.begin();
  std::byte* const slots = pair.express(kOwner).payloads(kOwner);
  std::memset(slots, 0x5a, pair.express(kOwner).payloads_bytes());
  const std::vector<std::byte> before(slots, slots + pair.express(kOwner).payloads_bytes());
  pair.give(input);
  EXPECT_EQ(std::memcmp(before.data(), slots, before.size()), 0);
}

TEST(Feeds, NeedRoom) {
  EXPECT_TRUE(Pair(64 << 10).feeds(kReader).fits());
  EXPECT_TRUE(Pair(32 << 10).feeds(kReader).fits());
  EXPECT_FALSE(Pair(16 << 10).feeds(kReader).fits());
  EXPECT_FALSE(Pair(0).feeds(kReader).fits());
}

}  // namespace
}  // namespace kolo::engine
