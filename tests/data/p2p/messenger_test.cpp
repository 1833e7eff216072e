// SPDX-License-Identifier: Apache-2.0
//
// Messages when there is no memory for them.
#include "data/p2p/messenger.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <kolo/error.hpp>

#include "core/topology.hpp"
#include "tests/support/lone_link.hpp"
#include "tests/support/scarce_memory.hpp"

namespace kolo::p2p {
namespace {

/// Two ranks of a node.
class Pair {
 public:
  Pair() : link_(NodeChannels::bytes(2)) {
    for (int rank = 0; rank < 2; ++rank) topologies_.push_back(core::make_topology(rank, std::vector<int>(2), 0));
    for (const core::Topology& topology : topologies_) {
      messengers_.push_back(std::make_unique<Messenger>(topology, link_.memory(), link_, nullptr, 8 << 10, true,
                                                        kernels::PeerCopy(), nullptr));
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

Message message_of(Message::Role role, int peer, int tag, std::vector<std::byte>& data) {
  Message message;
  message.role = role;
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
      Message send = message_of(Message::Role::send, 1, tag, data);
      ASSERT_TRUE(pair[0].start(send));
    }
    std::vector<std::byte> room(4000);
    Message receive = message_of(Message::Role::receive, 0, 3, room);
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
    Message send = message_of(Message::Role::send, 1, 3, data);
    ASSERT_TRUE(pair[0].start(send));
    pair.pass(1);
    EXPECT_EQ(room == data, !is_thrown) << n;
  }
}

TEST(Messenger, NoMemoryForMessagesOfOthersIsAnErrorThatEndsTheJob) {
  Pair pair;
  std::vector<std::byte> data(4000);
  std::vector<std::byte> room(8);
  Message send = message_of(Message::Role::send, 1, 1, data);
  Message receive = message_of(Message::Role::receive, 0, 3, room);
  ASSERT_FALSE(pair[1].start(receive));
  ASSERT_TRUE(pair[0].start(send));
  const testing::ScarceMemory scarce(1);
  EXPECT_THROW(pair.pass(1), Error);
}

}  // namespace
}  // namespace kolo::p2p
