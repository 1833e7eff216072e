// SPDX-License-Identifier: Apache-2.0
//
// Long unnamed calls in which a rank that is read from writes a part of its data itself.
#include "engine/joint_reads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/express_routes.hpp"

namespace kolo::engine {
namespace {

using control::Express;
using core::CollectiveKind;

constexpr std::size_t kElements = 1'500'001;  // of 4 bytes, of each rank
constexpr std::size_t kCapacity = 256;        // too little for feeds
constexpr int kCalls = 6;

/// Ranks of one process that read as processes do.
class Memory final : public transport::PeerMemory {
 public:
  Status read(int, void* to, const void* from, std::size_t bytes) override {
    ++reads;
    std::memcpy(to, from, bytes);
    if (in_read) in_read();
    return {};
  }
  Status write(int, const Target& target, const void* from, std::size_t bytes) override {
    ++writes;
    if (before_system) before_system(target);
    const std::size_t wanted = target.bytes.load();
    if (wanted != bytes || fails) return {ErrorCode::transport, "taken back"};
    std::memcpy(reinterpret_cast<void*>(target.address.load()), from, bytes);
    return {};
  }
  [[nodiscard]] bool sees_writers() const noexcept override { return true; }
  [[nodiscard]] bool may_be_writing(int, int) const noexcept override { return runs.load(); }
  [[nodiscard]] bool is_readable(const void*, std::size_t) override { return true; }
  [[nodiscard]] bool reads_by_system() const noexcept override { return true; }

  std::function<void()> in_read;
  std::function<void(const Target&)> before_system;
  std::atomic<int> reads{0};
  std::atomic<int> writes{0};
  std::atomic<bool> runs{true};
  bool fails = false;
};

class World {
 public:
  World(CollectiveKind kind, int ranks, std::size_t capacity = kCapacity) : kind_(kind), ranks_(ranks) {
    const std::size_t column = Express::column_bytes(capacity);
    memory_.reset(
        static_cast<std::byte*>(::operator new (column* static_cast<std::size_t>(ranks), std::align_val_t{4096})));
    std::memset(memory_.get(), 0, column * static_cast<std::size_t>(ranks));
    const base::Columns columns = base::Columns::in_a_row(memory_.get(), column, ranks);
    for (int rank = 0; rank < ranks; ++rank) ends_.push_back(std::make_unique<End>(columns, capacity, rank, peers));
  }

  /// What a rank of a world that runs does in one call, once all have spoken.
  using Await = ExpressRoutes::Await;
  static void patiently(const std::function<bool()>& there) {
    while (!there()) std::this_thread::yield();
  }
  void call(int rank, bool in_place = false, const Await& await = patiently) {
    End& end = *ends_[static_cast<std::size_t>(rank)];
    const ExpressCall call = end.call(kind_, ranks_, in_place);
    end.express.speak(end.routes.prepare(call));
    while (end.express.look() == Express::Verdict::undecided) std::this_thread::yield();
    ASSERT_EQ(end.express.look(), Express::Verdict::together);
    end.routes.run(call, await);
  }
  void fill(int rank) {
    End& end = *ends_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < kElements; ++i) end.input[i] = value(rank, i);
    std::fill(end.output.begin(), end.output.end(), -1.0F);
  }
  /// Between two calls: whether a rank has fed the reader in the one before, given that its slots were cleared.
  void clear_slots(int rank) { std::memset(slots(rank), 0, sizeof(float)); }
  [[nodiscard]] bool has_fed(int rank) {
    float first = 0;
    std::memcpy(&first, slots(rank), sizeof first);
    return first != 0;
  }
  [[nodiscard]] std::vector<float>& output(int rank) { return ends_[static_cast<std::size_t>(rank)]->output; }
  [[nodiscard]] std::vector<float>& input(int rank) { return ends_[static_cast<std::size_t>(rank)]->input; }
  void check(int rank, const std::vector<float>& result) const {
    for (std::size_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], expected(rank, i)) << rank << ", " << i;
  }

  std::shared_ptr<Memory> peers = std::make_shared<Memory>();

 private:
  struct End {
    End(const base::Columns& columns, std::size_t capacity, int rank, const std::shared_ptr<Memory>& peers)
        : express(columns, capacity, rank),
          routes(express, {peers, {0, 1, 2}, {0, 1, 2}, true}, {kCapacity, 16, 64 << 20, 64 << 20}) {}
    [[nodiscard]] ExpressCall call(CollectiveKind kind, int ranks, bool in_place) {
      ExpressCall call;
      call.kind = kind;
      call.shape = kind == CollectiveKind::scatter ? Shape{} : Shape{static_cast<std::int64_t>(kElements)};
      if (kind == CollectiveKind::scatter) {
        splits.assign(static_cast<std::size_t>(ranks), static_cast<std::int64_t>(kElements) / ranks);
        call.splits = splits;
      }
      auto* const out = reinterpret_cast<std::byte*>(in_place ? input.data() : output.data());
      call.buffer = {reinterpret_cast<const std::byte*>(input.data()), out,
                     kind == CollectiveKind::scatter ? splits[0] * ranks : static_cast<std::int64_t>(kElements)};
      call.make_room = [out](const std::vector<std::int64_t>&) { return out; };
      return call;
    }
    Express express;
    ExpressRoutes routes;
    std::vector<std::int64_t> splits;
    std::vector<float> input = std::vector<float>(kElements);
    std::vector<float> output = std::vector<float>(3 * kElements);
  };
  [[nodiscard]] std::byte* slots(int rank) { return ends_[static_cast<std::size_t>(rank)]->express.payloads(rank); }
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
  };

  static float value(int rank, std::size_t i) { return static_cast<float>(i % 100'000 * 4) + static_cast<float>(rank); }
  [[nodiscard]] float expected(int rank, std::size_t i) const {
    const std::size_t each = kElements / static_cast<std::size_t>(ranks_);
    switch (kind_) {
    case CollectiveKind::broadcast:
      return i < kElements ? value(0, i) : -1;
    case CollectiveKind::reduce: {
      float sum = 0;
      for (int one = 0; one < ranks_; ++one) sum += value(one, i);
      return i < kElements && rank == 0 ? sum : -1;
    }
    case CollectiveKind::gather:
      return rank == 0 && i < kElements * static_cast<std::size_t>(ranks_)
                 ? value(static_cast<int>(i / kElements), i % kElements)
                 : -1;
    default:  // scatter
      return i < each ? value(0, i + each * static_cast<std::size_t>(rank)) : -1;
    }
  }

  const CollectiveKind kind_;
  const int ranks_;
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<std::unique_ptr<End>> ends_;
};

class Calls : public ::testing::TestWithParam<std::tuple<CollectiveKind, int>> {
 protected:
  /// All ranks side by side, several calls.
  static void run(int ranks, const std::function<void(int)>& rank) {
    std::vector<std::thread> others;
    for (int other = 1; other < ranks; ++other) others.emplace_back(rank, other);
    rank(0);
    for (std::thread& other : others) other.join();
  }
};

TEST_P(Calls, BringTheSameWhoeverCopies) {
  const auto [kind, ranks] = GetParam();
  World world(kind, ranks);
  const bool helps = kind != CollectiveKind::reduce || ranks == 2;
  const bool root_reads = kind == CollectiveKind::reduce || kind == CollectiveKind::gather;
  thread_local bool must_be_helped = false;
  world.peers->in_read = [&] {
    while (must_be_helped && world.peers->writes == 0) std::this_thread::yield();
  };
  run(ranks, [&](int rank) {
    must_be_helped = helps && (rank == 0) == root_reads;
    for (int call = 0; call < kCalls; ++call) {
      world.fill(rank);
      world.call(rank);
      world.check(rank, world.output(rank));
    }
  });
  EXPECT_EQ(world.peers->writes > 0, helps);
}

TEST_P(Calls, AreReadWhereNothingCanBeWritten) {
  const auto [kind, ranks] = GetParam();
  World world(kind, ranks);
  world.peers->fails = true;
  run(ranks, [&](int rank) {
    for (int call = 0; call < kCalls; ++call) {
      world.fill(rank);
      world.call(rank);
      world.check(rank, world.output(rank));
    }
  });
  EXPECT_LT(world.peers->writes, ranks) << "it is tried once for each reader";
}

INSTANTIATE_TEST_SUITE_P(Joint, Calls,
                         ::testing::Combine(::testing::Values(CollectiveKind::broadcast, CollectiveKind::gather,
                                                              CollectiveKind::scatter, CollectiveKind::reduce),
                                            ::testing::Values(2, 3)),
                         [](const auto& info) {
                           return std::string(core::to_string(std::get<0>(info.param))) +
                                  std::to_string(std::get<1>(info.param));
                         });

class OfTwo : public ::testing::TestWithParam<CollectiveKind> {
 protected:
  /// Who reads, and whom it reads from.
  [[nodiscard]] static int reader() {
    return GetParam() == CollectiveKind::gather || GetParam() == CollectiveKind::reduce ? 0 : 1;
  }
};

/// The owner is stopped before the system writes: the reader does its part, and what the owner does later is nothing.
TEST_P(OfTwo, WhoIsStoppedIsNotWaitedFor) {
  World world(GetParam(), 2);
  std::atomic<bool> reader_has_ended{false};
  std::atomic<bool> owner_writes{false};
  world.fill(0);
  world.fill(1);
  const std::thread::id here = std::this_thread::get_id();
  world.peers->in_read = [&] {
    while (std::this_thread::get_id() == here && !owner_writes.load()) std::this_thread::yield();
  };
  world.peers->before_system = [&](const transport::PeerMemory::Target& target) {
    owner_writes = true;
    world.peers->runs = false;
    while (!reader_has_ended.load()) std::this_thread::yield();
    EXPECT_EQ(target.bytes.load(), 0U) << "it was taken back";
  };
  std::thread owner([&] { world.call(1 - reader()); });
  world.call(reader());
  world.check(reader(), world.output(reader()));
  std::fill(world.output(reader()).begin(), world.output(reader()).end(), 7.0F);
  reader_has_ended = true;
  owner.join();
  EXPECT_EQ(std::count(world.output(reader()).begin(), world.output(reader()).end(), 7.0F),
            static_cast<std::ptrdiff_t>(world.output(reader()).size()));
  EXPECT_EQ(world.peers->writes, 1);
  // That state is not used again.
  world.peers->in_read = nullptr;
  world.peers->before_system = nullptr;
  for (int rank : {0, 1}) world.fill(rank);
  std::thread again([&] { world.call(1 - reader()); });
  world.call(reader());
  again.join();
  world.check(reader(), world.output(reader()));
  EXPECT_EQ(world.peers->writes, 1);
}

/// The reader loses its patience, or hears of a fault, while the owner writes.
TEST_P(OfTwo, WhoGivesUpGetsItsMemoryBack) {
  World world(GetParam(), 2);
  std::atomic<bool> owner_writes{false};
  std::atomic<bool> gave_up{false};
  world.fill(0);
  world.fill(1);
  const std::thread::id here = std::this_thread::get_id();
  world.peers->in_read = [&] {
    while (std::this_thread::get_id() == here && !owner_writes.load()) std::this_thread::yield();
  };
  world.peers->before_system = [&](const transport::PeerMemory::Target& target) {
    owner_writes = true;
    while (target.bytes.load() > 0) std::this_thread::yield();
  };
  const auto impatiently = [](const std::function<bool()>& there) {
    if (!there()) throw Error(ErrorCode::rank_lost, "rank 7 died");
  };
  std::thread owner([&] {
    const auto until_given_up = [&](const std::function<bool()>& there) {
      while (!there()) {
        if (gave_up.load()) throw Error(ErrorCode::rank_lost, "rank 7 died");
        std::this_thread::yield();
      }
    };
    EXPECT_THROW(world.call(1 - reader(), false, until_given_up), Error);
  });
  EXPECT_THROW(world.call(reader(), false, impatiently), Error);
  std::fill(world.output(reader()).begin(), world.output(reader()).end(), 7.0F);
  gave_up = true;
  owner.join();
  EXPECT_EQ(std::count(world.output(reader()).begin(), world.output(reader()).end(), 7.0F),
            static_cast<std::ptrdiff_t>(world.output(reader()).size()));
}

INSTANTIATE_TEST_SUITE_P(Joint, OfTwo,
                         ::testing::Values(CollectiveKind::broadcast, CollectiveKind::gather, CollectiveKind::scatter,
                                           CollectiveKind::reduce),
                         [](const auto& info) { return std::string(core::to_string(info.param)); });

/// A piece that was written over the root's input could not be reduced once more.
TEST(JointReduce, InPlaceIsTheRootsAlone) {
  World world(CollectiveKind::reduce, 2);
  std::thread other([&] {
    for (int call = 0; call < kCalls; ++call) {
      world.fill(1);
      world.call(1);
    }
  });
  for (int call = 0; call < kCalls; ++call) {
    world.fill(0);
    world.call(0, true);
    world.check(0, world.input(0));
  }
  other.join();
  EXPECT_EQ(world.peers->writes, 0);
}

class ReduceOfTwo : public ::testing::TestWithParam<bool> {};

/// Both ways are tried: the sums are the same. (A root whose peer has no turn on a busy machine reads what it was to be
/// fed. So it goes on until it was fed a piece.)
TEST_P(ReduceOfTwo, IsReadOrFed) {
  constexpr int kLeastCalls = 24;
  constexpr int kMostCalls = 1000;
  const bool in_place = GetParam();
  World world(CollectiveKind::reduce, 2, 64 << 10);
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  std::atomic<bool> over{false};
  std::thread other([&] {
    for (int call = 0;; ++call) {
      while (begun == call && !over) std::this_thread::yield();
      if (begun == call) return;
      world.fill(1);
      world.call(1);
      ++ended;
    }
  });
  int fed = 0;
  for (int call = 0; call < kLeastCalls || (fed == 0 && call < kMostCalls); ++call) {
    world.clear_slots(1);
    ++begun;
    world.fill(0);
    world.call(0, in_place);
    world.check(0, in_place ? world.input(0) : world.output(0));
    while (ended <= call) std::this_thread::yield();
    fed += world.has_fed(1) ? 1 : 0;
  }
  over = true;
  other.join();
  EXPECT_GT(world.peers->reads, 0);
  EXPECT_GT(fed, 0);
}

/// An owner that is stopped after some pieces: the root reads the rest.
TEST_P(ReduceOfTwo, GoesOnWithoutAnOwnerThatIsStopped) {
  constexpr int kCalls = 12;  // some of them are fed
  const bool in_place = GetParam();
  World world(CollectiveKind::reduce, 2, 64 << 10);
  std::atomic<int> ended{0};
  std::thread other([&] {
    for (int call = 0; call < kCalls; ++call) {
      world.fill(1);
      const auto one_look_then_stopped = [&](const std::function<bool()>& there) {
        if (there()) return;
        while (ended == call) std::this_thread::yield();
        World::patiently(there);
      };
      world.call(1, false, one_look_then_stopped);
    }
  });
  for (int call = 0; call < kCalls; ++call) {
    world.fill(0);
    world.call(0, in_place);
    world.check(0, in_place ? world.input(0) : world.output(0));
    ++ended;
  }
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Fed, ReduceOfTwo, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InPlace" : "ToAnotherBuffer"; });

}  // namespace
}  // namespace kolo::engine
