// SPDX-License-Identifier: Apache-2.0
//
// Messages when something is wrong around them: no memory, and a peer that hangs.
#include "data/p2p/messenger.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <kolo/error.hpp>

#include "core/topology.hpp"
#include "tests/support/lone_link.hpp"
#include "tests/support/scarce_memory.hpp"
#include "transport/peer_memory.hpp"

namespace kolo::p2p {
namespace {

/// Memory that the system reads and writes for processes.
class SystemMemory final : public transport::PeerMemory {
 public:
  Status read(int, void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Status write(int, const Target& target, const void* from, std::size_t bytes) override {
    if (before_write) before_write();
    if (target.bytes.load() != bytes) return {ErrorCode::transport, "taken back"};
    std::memcpy(reinterpret_cast<void*>(target.address.load()), from, bytes);
    return {};
  }
  [[nodiscard]] bool sees_writers() const noexcept override { return true; }
  [[nodiscard]] bool may_be_writing(int, int) const noexcept override { return true; }
  [[nodiscard]] bool reads_by_system() const noexcept override { return true; }

  std::function<void()> before_write;
};

/// Two ranks of a node.
class Pair {
 public:
  explicit Pair(const std::shared_ptr<transport::PeerMemory>& peers = nullptr) : link_(NodeChannels::bytes(2)) {
    for (int rank = 0; rank < 2; ++rank) topologies_.push_back(core::make_topology(rank, std::vector<int>(2), 0));
    for (const core::Topology& topology : topologies_) {
      messengers_.push_back(std::make_unique<Messenger>(topology, link_.memory(), link_, peers, 8 << 10,
                                                        peers == nullptr, kernels::PeerCopy(), nullptr));
    }
  }
  [[nodiscard]] Messenger& operator[](int rank) { return *messengers_[static_cast<std::size_t>(rank)]; }
  /// One pass of that rank's driver.
  void pass(int rank) {
    std::vector<std::string> warnings;
    (*this)[rank].progress(base::now(), warnings);
  }

 private:
  testing::LoneLink link_;
  std::vector<core::Topology> topologies_;
  std::vector<std::unique_ptr<Messenger>> messengers_;
};

Message message_of(Message::Way way, int peer, int tag, std::vector<std::byte>& data) {
  Message message;
  message.way = way;
  message.peer = peer;
  message.tag = tag;
  message.data = data.data();
  message.tensor = data.data();
  message.bytes = data.size();
  return message;
}

/// The call's message is on the caller's stack: whatever fails, the messenger knows it no more.
TEST(Messenger, ACallThatFailsForWantOfMemoryLeavesNoMessageOpen) {
  bool has_failed = true;
  for (int n = 1; has_failed; ++n) {
    ASSERT_LT(n, 100);
    Pair pair;
    std::vector<std::byte> data(4000, std::byte{1});
    for (const int tag : {1, 2}) {  // those that nobody asks for
      Message send = message_of(Message::Way::send, 1, tag, data);
      ASSERT_TRUE(pair[0].start(send));
    }
    std::vector<std::byte> room(4000);
    Message receive = message_of(Message::Way::receive, 0, 3, room);
    const std::array<Message*, 1> messages{&receive};
    bool is_thrown = false;
    {
      const testing::ScarceMemory scarce(n);
      try {
        static_cast<void>(pair[1].start(Span<Message* const>(messages.data(), 1), 0));
      } catch (const std::exception&) {
        is_thrown = true;
      }
      has_failed = testing::ScarceMemory::has_failed();
    }
    if (is_thrown) {
      EXPECT_FALSE(pair[1].uses(room.data(), room.size())) << n;
    }
    Message send = message_of(Message::Way::send, 1, 3, data);
    ASSERT_TRUE(pair[0].start(send));
    pair.pass(1);
    EXPECT_EQ(room == data, !is_thrown) << n;
  }
}

TEST(Messenger, NoMemoryForMessagesOfOthersIsAnErrorThatEndsTheJob) {
  Pair pair;
  std::vector<std::byte> data(4000);
  std::vector<std::byte> room(8);
  Message send = message_of(Message::Way::send, 1, 1, data);
  Message receive = message_of(Message::Way::receive, 0, 3, room);
  ASSERT_FALSE(pair[1].start(receive));
  ASSERT_TRUE(pair[0].start(send));
  const testing::ScarceMemory scarce(1);
  EXPECT_THROW(pair.pass(1), Error);
}

/// A sender that waits for a disk, say, in the middle of a piece. Its receiver gives up.
TEST(Messenger, ASenderThatHangsWhileItWritesEndsTheJob) {
  const auto memory = std::make_shared<SystemMemory>();
  Pair pair(memory);
  std::vector<std::byte> data(std::size_t{1} << 20, std::byte{1});
  std::vector<std::byte> room(data.size());
  Message send = message_of(Message::Way::send, 1, 1, data);
  Message receive = message_of(Message::Way::receive, 0, 1, room);
  ASSERT_FALSE(pair[0].start(send));
  ASSERT_FALSE(pair[1].start(receive));
  int writes = 0;
  memory->before_write = [&] {
    ++writes;
    pair[1].give_up(receive, Status(ErrorCode::expired, "its deadline has passed"));
    EXPECT_TRUE(receive.done());
    EXPECT_TRUE(pair[1].is_busy()) << "somebody must be told";
    room.assign(room.size(), std::byte{7});
    std::string said;
    try {
      pair.pass(1);
    } catch (const Error& error) {
      said = error.status().message();
    }
    EXPECT_EQ(said, "rank 0 hangs while it writes a message into this rank's memory, and may go on with that at any "
                    "time: it waits for memory or for a disk");
    pair[1].close(Status(ErrorCode::transport, said));
    EXPECT_FALSE(pair[1].is_busy());
  };
  for (int i = 0; i < 10 && writes == 0; ++i) {
    std::vector<std::string> warnings;
    static_cast<void>(pair[1].arm());
    pair.pass(0);
    if (writes == 0) pair.pass(1);
  }
  EXPECT_EQ(writes, 1);
  EXPECT_EQ(room, std::vector<std::byte>(room.size(), std::byte{7})) << "this one had not reached the system";
}

}  // namespace
}  // namespace kolo::p2p
