// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/node_channels.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/topology.hpp"
#include "tests/support/random.hpp"
#include "transport/shm/peer_memory.hpp"
#include "transport/shm/segment.hpp"

namespace kolo::p2p {
namespace {

/// Rings the bells of all ranks of a node.
class Bells final : public transport::NodeLink {
 public:
  explicit Bells(std::vector<int>& rung) : rung_(rung) {}
  [[nodiscard]] std::byte* memory() const noexcept override { return nullptr; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return 0; }
  void wake(int local_rank) noexcept override { ++rung_[static_cast<std::size_t>(local_rank)]; }
  [[nodiscard]] int wake_fd() const noexcept override { return -1; }
  [[nodiscard]] std::vector<Liveness> liveness() const override { return {}; }
  std::shared_ptr<transport::SharedRegion> share(const transport::Sharers&, std::size_t, const transport::Meeting&,
                                                 const std::function<void()>&) override {
    std::abort();
  }
  std::shared_ptr<transport::PeerMemory> peer_memory(const transport::Meeting&) override { std::abort(); }

 private:
  std::vector<int>& rung_;
};

class Node {
 public:
  static constexpr std::uint64_t kReadAbove = 9000;
  explicit Node(int ranks, std::shared_ptr<transport::PeerMemory> peers = nullptr)
      : rung(static_cast<std::size_t>(ranks)), memory_(shm::Segment::anonymous(NodeChannels::bytes(ranks))),
        bells_(rung) {
    for (int rank = 0; rank < ranks; ++rank) {
      topologies_.push_back(core::make_topology(rank, std::vector<int>(static_cast<std::size_t>(ranks)), 0));
    }
    for (const core::Topology& topology : topologies_) {
      channels_.push_back(std::make_unique<NodeChannels>(topology, memory_.data(), bells_, peers, kReadAbove, true,
                                                         kernels::PeerCopy()));
    }
  }
  [[nodiscard]] NodeChannels& operator[](int rank) { return *channels_[static_cast<std::size_t>(rank)]; }
  /// Of the words of the node's memory that the ranks share: the only one that has this value.
  template <class Word>
  [[nodiscard]] Word* find_only(Word value) {
    auto* const begin = reinterpret_cast<Word*>(memory_.data());
    auto* const end = begin + memory_.bytes() / sizeof(Word);
    EXPECT_EQ(std::count(begin, end, value), 1);
    return std::find(begin, end, value);
  }

  std::vector<int> rung;  ///< how often, by local rank

 private:
  shm::Segment memory_;
  Bells bells_;
  std::vector<core::Topology> topologies_;
  std::vector<std::unique_ptr<NodeChannels>> channels_;
};

struct Taken final : FrameHandler {
  struct One {
    int source;
    Frame frame;
    std::vector<std::byte> data;
  };
  std::vector<One> all;
  void on_frame(int source, const Frame& frame, const std::byte* data, std::size_t bytes) override {
    all.push_back({source, frame, std::vector<std::byte>(data, data + bytes)});
  }
};

std::vector<std::byte> bytes_of(std::size_t bytes, std::uint64_t number) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(number * 7 + 1));
}

Frame numbered(std::uint64_t id) {
  Frame frame;
  frame.id = id;
  frame.tag = static_cast<std::int32_t>(id * 3);
  return frame;
}

TEST(NodeChannels, FramesOfEverySizeKeepTheirOrderAroundTheRing) {
  Node node(2);
  kolo::testing::Random random = kolo::testing::random_of(4, 2);
  Taken taken;
  std::uint64_t sent = 0;
  bool was_full = false;
  while (sent < 3000) {
    for (;;) {
      const std::size_t bytes = kolo::testing::chance(random, 50)
                                    ? static_cast<std::size_t>(kolo::testing::draw(random, 140))
                                    : static_cast<std::size_t>(kolo::testing::draw(random, 16385));
      if (!node[0].put(1, numbered(sent), bytes_of(bytes, sent).data(), bytes)) {
        was_full = true;
        break;
      }
      ++sent;
      if (kolo::testing::chance(random, 20)) break;
    }
    node[1].take(taken);
  }
  while (node[1].take(taken)) {
  }
  EXPECT_TRUE(was_full);
  ASSERT_EQ(taken.all.size(), sent);
  for (std::uint64_t id = 0; id < sent; ++id) {
    const Taken::One& one = taken.all[id];
    ASSERT_EQ(one.frame.id, id);
    ASSERT_EQ(one.frame.tag, static_cast<std::int32_t>(id * 3));
    ASSERT_EQ(one.source, 0);
    ASSERT_EQ(one.data, bytes_of(one.data.size(), id));
  }
  EXPECT_FALSE(node[0].take(taken)) << "nothing came back";
}

TEST(NodeChannels, WhatHasComeIsSeenWithoutBeingTaken) {
  Node node(3);
  Taken taken;
  EXPECT_FALSE(node[2].has_come());
  for (int turn = 0; turn < 300; ++turn) {  // around the ring, with fillers
    const int source = turn % 2;
    const std::vector<std::byte> data(static_cast<std::size_t>(turn % 5) * 1000);
    ASSERT_TRUE(node[source].put(2, Frame(), data.data(), data.size()));
    EXPECT_TRUE(node[2].has_come()) << turn;
    EXPECT_FALSE(node[1 - source].has_come()) << turn;
    ASSERT_TRUE(node[2].take(taken));
    EXPECT_FALSE(node[2].has_come()) << turn;
  }
  EXPECT_EQ(taken.all.size(), 300u);
}

TEST(NodeChannels, BetweenTwoThreads) {
  Node node(3);
  constexpr std::uint64_t kFrames = 20000;
  const auto run = [&](int own, int to) {
    Taken taken;
    std::uint64_t sent = 0;
    std::size_t checked = 0;
    while (sent < kFrames || checked < kFrames) {
      const std::size_t bytes = sent % 97 == 0 ? 9000 : sent % 30;
      if (sent < kFrames && node[own].put(to, numbered(sent), bytes_of(bytes, sent).data(), bytes)) ++sent;
      node[own].take(taken);
      for (const Taken::One& one : taken.all) {
        ASSERT_EQ(one.frame.id, checked);
        ASSERT_EQ(one.data, bytes_of(checked % 97 == 0 ? 9000 : checked % 30, checked));
        ++checked;
      }
      if (taken.all.empty()) std::this_thread::yield();
      taken.all.clear();
    }
  };
  std::thread first([&] { run(0, 1); });
  std::thread second([&] { run(1, 2); });
  run(2, 0);
  first.join();
  second.join();
}

TEST(NodeChannels, WhoIsArmedIsRungOnce) {
  Node node(2);
  Taken taken;
  ASSERT_TRUE(node[0].put(1, numbered(0), nullptr, 0));
  EXPECT_EQ(node.rung[1], 0) << "it is awake";
  node[1].arm();
  ASSERT_TRUE(node[0].put(1, numbered(1), nullptr, 0));
  ASSERT_TRUE(node[0].put(1, numbered(2), nullptr, 0));
  EXPECT_EQ(node.rung[1], 1);
  node[1].arm();
  node[1].disarm();
  ASSERT_TRUE(node[0].put(1, numbered(3), nullptr, 0));
  EXPECT_EQ(node.rung[1], 1);
  node[1].take(taken);
  EXPECT_EQ(taken.all.size(), 4U);
}

TEST(NodeChannels, WhoWaitsForRoomIsRungWhenThereIsSome) {
  Node node(2);
  Taken taken;
  const std::vector<std::byte> data(16384);
  while (node[0].put(1, numbered(0), data.data(), data.size())) {
  }
  node[0].arm();
  node[1].take(taken);
  EXPECT_EQ(node.rung[0], 1);
  EXPECT_TRUE(node[0].put(1, numbered(0), data.data(), data.size()));
  node[0].arm();
  node[1].take(taken);
  EXPECT_EQ(node.rung[0], 1) << "it waits for no room";
}

TEST(NodeChannels, OnlyARankOfTheNodeOpensARing) {
  Node node(2);
  Frame frame = numbered(0);
  frame.kind = FrameKind::taken;
  frame.dtype = DType::boolean;
  ASSERT_TRUE(node[0].put(1, frame, nullptr, 0));
  *node.find_only<std::uint64_t>(1) = 1U << 2;
  Taken taken;
  try {
    node[1].take(taken);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status().message(), "local rank 2 of a node of 2 ranks uses a ring of messages");
  }
}

TEST(NodeChannels, WhomAnotherRankWaitsForIsARankOrNobody) {
  Node node(3);
  node[1].note_wait(2);
  EXPECT_EQ(node[0].wait_of(1), 2);
  std::int32_t* const wait = node.find_only<std::int32_t>(3);
  for (const std::int32_t said : {4, -1, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<int>::min()}) {
    *wait = said;
    EXPECT_EQ(node[0].wait_of(1), Channels::kNobody) << said;
  }
}

TEST(NodeChannels, MemoryIsReadWhileItIsPermitted) {
  Node node(2, shm::read_between_threads());
  const std::vector<std::byte> data(100000, std::byte{5});
  std::vector<std::byte> room(data.size());
  const std::uint32_t permit = node[0].permit(1, data.size());
  ASSERT_NE(permit, 0U);
  const auto address = reinterpret_cast<std::uintptr_t>(data.data());
  EXPECT_EQ(node[1].read(0, permit, room.data(), address, 50000), Channels::Read::done);
  EXPECT_EQ(node[1].read(0, permit, room.data() + 50000, address + 50000, 50000), Channels::Read::done);
  EXPECT_EQ(room, data);
  node[0].end(permit);
  EXPECT_EQ(node[1].read(0, permit, room.data(), address, 10), Channels::Read::withdrawn);
  const std::uint32_t next = node[0].permit(1, data.size());
  EXPECT_NE(next, permit);
  EXPECT_EQ(node[1].read(0, permit, room.data(), address, 10), Channels::Read::withdrawn) << "it is another's now";
  EXPECT_EQ(node[1].read(0, next, room.data(), address, 10), Channels::Read::done);
  node[0].end(next);
}

TEST(NodeChannels, ThereAreSoManyPermits) {
  Node node(2, shm::read_between_threads());
  const std::vector<std::byte> data(100000);
  std::vector<std::uint32_t> permits;
  while (const std::uint32_t permit = node[0].permit(1, data.size())) permits.push_back(permit);
  EXPECT_EQ(permits.size(), 64U);
  std::sort(permits.begin(), permits.end());
  EXPECT_EQ(std::unique(permits.begin(), permits.end()), permits.end());
  node[0].end(permits.back());
  EXPECT_NE(node[0].permit(1, data.size()), 0U);
}

/// Memory that the system reads for a process.
class ProcessMemory final : public transport::PeerMemory {
 public:
  Status read(int, void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    if (meanwhile) meanwhile();
    return {};
  }
  std::function<void()> meanwhile;

  [[nodiscard]] bool reads_by_system() const noexcept override { return true; }
};

TEST(NodeChannels, WhatTheSystemHasReadOfMemoryThatWasTakenBackIsDropped) {
  const auto memory = std::make_shared<ProcessMemory>();
  Node node(2, memory);
  const std::vector<std::byte> data(100000, std::byte{7});
  std::vector<std::byte> room(data.size());
  const auto address = reinterpret_cast<std::uintptr_t>(data.data());
  const std::uint32_t permit = node[0].permit(1, data.size());
  EXPECT_EQ(node[1].read(0, permit, room.data(), address, 50000), Channels::Read::done);
  memory->meanwhile = [&] { node[0].end(permit); };
  EXPECT_EQ(node[1].read(0, permit, room.data(), address, 50000), Channels::Read::withdrawn);
  std::uint32_t next = 0;
  memory->meanwhile = [&] { next = node[0].permit(1, data.size()); };
  EXPECT_EQ(node[1].read(0, permit, room.data(), address, 50000), Channels::Read::withdrawn) << "it is another's now";
  memory->meanwhile = nullptr;
  EXPECT_EQ(node[1].read(0, next, room.data(), address, 50000), Channels::Read::done);
}

TEST(NodeChannels, WhatIsNoLongerThanTheThresholdIsSent) {
  Node node(2, std::make_shared<ProcessMemory>());
  EXPECT_EQ(node[0].permit(1, Node::kReadAbove), 0U);
  EXPECT_NE(node[0].permit(1, Node::kReadAbove + 1), 0U);
}

TEST(NodeChannels, OneRankHasNone) {
  EXPECT_EQ(NodeChannels::bytes(1), 0U);
  Node node(2);
  EXPECT_EQ(node[0].wait_of(1), Channels::kNobody);
  node[1].note_wait(0);
  EXPECT_EQ(node[0].wait_of(1), 0);
}

}  // namespace
}  // namespace kolo::p2p
