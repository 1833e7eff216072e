// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives between ranks as threads: on one node, on virtual nodes, in groups; what may go wrong, and what is
// refused.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "tests/support/messages.hpp"
#include "tests/support/sanitized.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::Group;
using kolo::Received;
using kolo::testing::exchange_messages;
using kolo::testing::run_in;
using kolo::testing::sentence_of;
using std::chrono::milliseconds;

struct World {
  int ranks;
  int per_node;
  const char* read;  ///< which messages are read in the sender's memory
};

std::string name_of(const testing::TestParamInfo<World>& info) {
  return std::to_string(info.param.ranks) + "Ranks" + std::to_string(info.param.per_node) + "PerNode" +
         (std::string(info.param.read) == "none" ? "Sent" : "Read");
}

kolo::Options options_of(const World& world) {
  return kolo::Options{}
      .with_setting("KOLO_RANKS_PER_NODE", std::to_string(world.per_node))
      .with_setting("KOLO_ROUTES", "message:" + std::string(world.read) + "=peers")
      .with_setting("KOLO_TIMEOUT_S", "100");
}

class Messages : public testing::TestWithParam<World> {
 protected:
  static void run(const std::function<void()>& body) {
    kolo::run_local(GetParam().ranks, body, options_of(GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, Messages,
                         testing::Values(World{1, 0, "8K-"}, World{2, 0, "8K-"}, World{2, 0, "none"},
                                         World{2, 1, "none"}, World{4, 0, "8K-"}, World{4, 2, "none"},
                                         World{5, 2, "8K-"}, World{8, 3, "8K-"}),
                         name_of);

TEST_P(Messages, RandomExchangesInTheWorldAndInGroups) {
  run([] {
    std::vector<Group> groups{kolo::world(), kolo::world().split(kolo::rank() % 2, -kolo::rank())};
    constexpr std::uint64_t kRounds = kolo::testing::unless_sanitized(20, 4);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      for (const Group& group : groups) {
        EXPECT_EQ(exchange_messages(group, round, 12, round % 4 == 0 ? 200000 : 9000), "");
      }
      std::vector<int> x{1};
      kolo::allreduce(kolo::view(x));
      EXPECT_EQ(x[0], kolo::size());
    }
  });
}

/// What is sent in a ring, and by all to all, is more than any channel holds.
TEST_P(Messages, LongExchangesDoNotDeadlock) {
  run([] {
    const std::int64_t elements = kolo::testing::unless_sanitized(4 << 20, 300000);
    const int ranks = kolo::size(), own = kolo::rank();
    const auto value = [](int from, int to) { return from * 100 + to; };
    std::vector<std::vector<std::int32_t>> out, in;
    std::vector<kolo::Handle> handles;
    for (int other = 0; other < ranks; ++other) {
      out.emplace_back(static_cast<std::size_t>(elements / ranks), value(own, other));
      in.emplace_back(out.back().size(), -1);
    }
    for (int other = 0; other < ranks; ++other) {
      handles.push_back(kolo::send_async(kolo::const_view(out[static_cast<std::size_t>(other)]), other));
    }
    for (int other = 0; other < ranks; ++other) {
      const Received got = kolo::recv(kolo::view(in[static_cast<std::size_t>(other)]), other);
      EXPECT_EQ(got.source, other);
      EXPECT_EQ(got.elements, elements / ranks);
    }
    kolo::wait_all(handles);
    for (int other = 0; other < ranks; ++other) {
      const auto& theirs = in[static_cast<std::size_t>(other)];
      EXPECT_EQ(std::count(theirs.begin(), theirs.end(), value(other, own)), static_cast<std::int64_t>(theirs.size()));
    }
    std::vector<std::int32_t> ring(static_cast<std::size_t>(elements), own), from(ring.size(), -1);
    kolo::Handle sent = kolo::send_async(kolo::const_view(ring), (own + 1) % ranks, 4);
    kolo::recv(kolo::view(from), (own + ranks - 1) % ranks, 4);
    sent.wait();
    EXPECT_EQ(std::count(from.begin(), from.end(), (own + ranks - 1) % ranks), elements);
  });
}

/// In a ring, by every number of ranks, in the world and in a group whose ranks stand in another order.
TEST_P(Messages, SendrecvInRings) {
  run([] {
    for (const Group& group : {kolo::world(), kolo::world().split(0, -kolo::rank())}) {
      const int ranks = kolo::size(group), own = kolo::rank(group);
      for (int distance = 0; distance < ranks; ++distance) {
        for (const std::int64_t elements : {0, 1, 2048, 2049, 5000, kolo::testing::unless_sanitized(400000, 100000)}) {
          const int to = (own + distance) % ranks, from = (own + ranks - distance) % ranks;
          std::vector<std::int32_t> out(static_cast<std::size_t>(elements), own), in(out.size() + 1, -1);
          const auto options = kolo::SendRecvOptions{}.with_send_tag(3).with_recv_tag(distance % 2 ? 3 : kolo::any_tag);
          const Received got = kolo::sendrecv(group, kolo::const_view(out), to, kolo::view(in), from, options);
          EXPECT_EQ(got.source, from);
          EXPECT_EQ(got.tag, 3);
          EXPECT_EQ(got.elements, elements);
          EXPECT_EQ(std::count(in.begin(), in.end(), from), elements);
          EXPECT_EQ(in.back(), -1);
          std::fill(out.begin(), out.end(), -7);  // it is this rank's again
        }
      }
    }
  });
}

/// What it sends and receives are messages like any other. Rank 0 takes turns with whoever comes.
TEST_P(Messages, SendrecvMeetsSendsAndReceives) {
  run([] {
    if (kolo::size() == 1) return;
    std::vector<std::int64_t> mine(30000, kolo::rank()), theirs(mine.size(), -1);
    if (kolo::rank() == 0) {
      for (int peer = 1; peer < kolo::size(); ++peer) {
        const Received got = kolo::sendrecv(kolo::const_view(mine), peer, kolo::view(theirs), kolo::any_rank, {});
        EXPECT_EQ(std::count(theirs.begin(), theirs.end(), got.source), got.elements);
        EXPECT_EQ(got.elements, 30000);
        EXPECT_EQ(got.tag, 5);
      }
    } else {
      kolo::Future<Received> receive = kolo::recv_async(kolo::view(theirs), 0);
      kolo::send(kolo::const_view(mine), 0, 5);
      EXPECT_EQ(receive.get().tag, 0);
      EXPECT_EQ(std::count(theirs.begin(), theirs.end(), 0), 30000);
    }
  });
}

TEST_P(Messages, SendrecvTellsWhatWentWrongWhenBothAreOver) {
  run([] {
    if (kolo::size() != 2) return;
    const int other = 1 - kolo::rank();
    const std::vector<int> much(30000, 4);
    std::vector<int> room(30000), little(1);
    const auto swap = [&](std::vector<int>& into, const kolo::SendRecvOptions& options = {}) {
      (void)kolo::sendrecv(kolo::const_view(much), other, kolo::view(into), other, options);
    };
    const std::string from = std::to_string(other);
    if (kolo::rank() == 0) {
      EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { swap(little); }),
                "recv of up to 1 element of int32 from rank 1 with any tag: the message from rank 1 with tag 0 has "
                "30000 elements; give room for as many");
    } else {
      const std::string said = sentence_of(ErrorCode::mismatch, [&] { swap(room); });
      EXPECT_TRUE(kolo::testing::has(said, {"send of 30000 elements of int32 to rank 0", "room for 1 element"}))
          << said;
      EXPECT_EQ(std::count(room.begin(), room.end(), 4), 30000) << "what came is there";
    }
    kolo::barrier();
    const std::string late = sentence_of(ErrorCode::expired, [&] {
      swap(room, kolo::SendRecvOptions{}.with_recv_tag(9).with_timeout(milliseconds(20)));
    });
    EXPECT_TRUE(kolo::testing::has(late, {"recv of up to 30000 elements", "with tag 9", "0.02 s"})) << late;
    kolo::barrier();  // as above
    EXPECT_EQ(exchange_messages(kolo::world().split(0), 3, 4, 30000), "");
  });
}

/// Rank 0 answers whoever comes, and sleeps meanwhile.
TEST_P(Messages, FromAnyone) {
  run([] {
    if (kolo::rank() == 0) {
      std::vector<int> seen(static_cast<std::size_t>(kolo::size()));
      for (int i = 0; i < 20 * (kolo::size() - 1); ++i) {
        std::int64_t question = 0;
        const Received got = kolo::recv(kolo::view(&question, {1}));
        EXPECT_EQ(got.tag, seen[static_cast<std::size_t>(got.source)]++);
        question *= 2;
        kolo::send(kolo::const_view(&question, {1}), got.source, 77);
      }
    } else {
      for (int i = 0; i < 20; ++i) {
        std::int64_t x = kolo::rank() * 1000 + i;
        kolo::send(kolo::const_view(&x, {1}), 0, i);
        std::int64_t answer = 0;
        kolo::recv(kolo::view(&answer, {1}), 0, 77);
        EXPECT_EQ(answer, 2 * x);
      }
    }
  });
}

TEST_P(Messages, AReceiveIsCancelledOrTimesOutAndTheJobGoesOn) {
  run([] {
    std::vector<float> room(10);
    kolo::Future<Received> receive = kolo::recv_async(kolo::view(room), kolo::any_rank, 5);
    EXPECT_FALSE(receive.wait_for(milliseconds(1)));
    EXPECT_FALSE(receive.done());
    EXPECT_TRUE(receive.cancel());
    EXPECT_EQ(sentence_of(ErrorCode::cancelled, [&] { receive.wait(); }),
              "recv of up to 10 elements of float32 from any rank with tag 5: it was cancelled");
    EXPECT_FALSE(receive.cancel());
    const auto late = [&] {
      kolo::recv(kolo::view(room), 0, kolo::any_tag, kolo::RecvOptions{}.with_timeout(milliseconds(20)));
    };
    EXPECT_EQ(
        sentence_of(ErrorCode::expired, late),
        "recv of up to 10 elements of float32 from rank 0 with any tag: no message that fits has come within 0.02 s");
    kolo::barrier();
    EXPECT_EQ(exchange_messages(kolo::world(), 5, 4, 30000), "");
  });
}

TEST_P(Messages, ASendThatNobodyReceivesTimesOut) {
  run([] {
    const int next = (kolo::rank() + 1) % kolo::size();
    const std::vector<float> x(100000);
    const auto send = [&] {
      kolo::send(kolo::const_view(x), next, 3, kolo::SendOptions{}.with_timeout(milliseconds(20)));
    };
    const std::string sentence = sentence_of(ErrorCode::expired, send);
    EXPECT_TRUE(kolo::testing::has(
        sentence, {"send of 100000 elements of float32 to rank ", " has not received it within 0.02 s"}))
        << sentence;
    kolo::barrier();
    // That a message was given up its receiver may hear later than this: the world's receives from any might get it.
    EXPECT_EQ(exchange_messages(kolo::world().split(0), 6, 4, 30000), "");
  });
}

TEST_P(Messages, WhatDoesNotFitFailsOnBothSides) {
  run([] {
    const int ranks = kolo::size(), next = (kolo::rank() + 1) % ranks, previous = (kolo::rank() + ranks - 1) % ranks;
    const std::string to = "rank " + std::to_string(next), from = "rank " + std::to_string(previous);
    const std::vector<float> x(100000);
    std::vector<float> small(5, -1);
    kolo::Handle sent = kolo::send_async(kolo::const_view(x), next, 3);
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { kolo::recv(kolo::view(small), previous); }),
              "recv of up to 5 elements of float32 from " + from + " with any tag: the message from " + from +
                  " with tag 3 has 100000 elements; give room for as many");
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { sent.wait(); }),
              "send of 100000 elements of float32 to " + to +
                  " with tag 3: its receive has room for 5 elements; give room for as many as are sent");
    EXPECT_EQ(small, std::vector<float>(5, -1));
    std::vector<double> other(3);
    sent = kolo::send_async(kolo::const_view(other), next, 4);
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { kolo::recv(kolo::view(small), previous, 4); }),
              "recv of up to 5 elements of float32 from " + from + " with tag 4: the message from " + from +
                  " with tag 4 is of float64; send and receive the same type");
    sent.wait();
    kolo::barrier();
  });
}

TEST_P(Messages, AreCounted) {
  run([] {
    const int next = (kolo::rank() + 1) % kolo::size(), previous = (kolo::rank() + kolo::size() - 1) % kolo::size();
    const std::vector<float> few(4), many(100000);
    std::vector<float> room(100000);
    for (int i = 0; i < 3; ++i) {
      kolo::Handle sent = kolo::send_async(kolo::const_view(few), next, 1);
      kolo::recv(kolo::view(room), previous, 1);
      sent.wait();
    }
    kolo::Handle sent = kolo::send_async(kolo::const_view(many), next, 2);
    kolo::recv(kolo::view(room), previous, 2);
    sent.wait();
    // It comes whole, so it is sent; and is not received, because it does not fit.
    sent = kolo::send_async(kolo::const_view(few), next, 3);
    EXPECT_THROW(kolo::recv(kolo::view(room.data(), {2}), previous, 3), kolo::Error);
    sent.wait();
    const kolo::Metrics metrics = kolo::metrics();
    EXPECT_EQ(metrics.messages_sent, 5U);
    EXPECT_EQ(metrics.message_bytes_sent, 4 * 16 + 400000U);
    EXPECT_EQ(metrics.messages_received, 4U);
    EXPECT_EQ(metrics.message_bytes_received, 3 * 16 + 400000U);
    kolo::barrier();
  });
}

TEST_P(Messages, CallbacksAndManyThreads) {
  run([] {
    const int next = (kolo::rank() + 1) % kolo::size();
    std::atomic<int> called{0};
    std::vector<std::vector<int>> out(50, std::vector<int>(1, 3)), in(50, std::vector<int>(1));
    std::vector<kolo::Handle> handles;
    kolo::Context& context = kolo::current_context();
    for (std::size_t i = 0; i < in.size(); ++i) {
      handles.push_back(kolo::recv_async(kolo::view(in[i]), kolo::any_rank, 0));
      handles.back().on_done([&called](const kolo::Status& status) { called += status.ok() ? 1 : 1000; });
    }
    std::thread other([&] {
      const kolo::ContextGuard guard(context);
      for (int i = 0; i < 200; ++i) {
        int x = i, y = 0;
        kolo::Handle sent = kolo::send_async(kolo::const_view(&x, {1}), next, 1);
        kolo::recv(kolo::view(&y, {1}), kolo::any_rank, 1);
        EXPECT_EQ(y, i);
        sent.wait();
      }
    });
    for (int i = 0; i < 200; ++i) {
      int x = i, y = 0;
      kolo::send(kolo::const_view(&x, {1}), next, 2);
      kolo::recv(kolo::view(&y, {1}), kolo::any_rank, 2);
      EXPECT_EQ(y, i);
    }
    for (const std::vector<int>& one : out) kolo::send(kolo::const_view(one), next, 0);
    kolo::wait_all(handles);
    other.join();
    kolo::barrier();
    for (const std::vector<int>& one : in) EXPECT_EQ(one[0], 3);
    while (called.load() < 50) std::this_thread::yield();  // another thread may still be at them
    EXPECT_EQ(called.load(), 50);
  });
}

TEST(PointToPoint, WhatALeavingRankHasSentIsReceivedAndThenNoMore) {
  for (const int per_node : {0, 1}) {
    run_in({2, per_node}, {{"KOLO_LATCH_TIMEOUT_S", "1"}}, [] {
      int x = 5;
      if (kolo::rank() == 1) {
        kolo::send(kolo::const_view(&x, {1}), 0, 3);
        return;
      }
      x = 0;
      kolo::recv(kolo::view(&x, {1}), 1);
      EXPECT_EQ(x, 5);
      EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { kolo::recv(kolo::view(&x, {1}), 1); }),
                "recv of up to 1 element of int32 from rank 1 with any tag: rank 1 has left the job");
      const std::vector<int> much(100000);
      EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { kolo::send(kolo::const_view(much), 1); }),
                "send of 100000 elements of int32 to rank 1 with tag 0: rank 1 has left the job");
    });
  }
}

// All others have left: a rank still gets what it sends to itself, and hears that nothing more comes when it waits.
TEST(PointToPoint, ARankAloneReceivesItsOwnMessagesFromAnyRank) {
  const auto ranks = [] {
    int x = 7, y = 0;
    if (kolo::rank() == 0) return;
    sentence_of(ErrorCode::rank_lost, [&] { kolo::recv(kolo::view(&y, {1}), 0); });
    kolo::Future<Received> before = kolo::recv_async(kolo::view(&y, {1}));
    kolo::send(kolo::const_view(&x, {1}), 1, 5);
    EXPECT_EQ(before.get().tag, 5);
    EXPECT_EQ(y, 7);
    EXPECT_EQ(kolo::sendrecv(kolo::const_view(&x, {1}), 1, kolo::view(&y, {1}), kolo::any_rank).source, 1);
    for (const bool starts : {false, true}) {
      EXPECT_EQ(sentence_of(ErrorCode::rank_lost,
                            [&] {
                              if (starts) {
                                kolo::recv_async(kolo::view(&y, {1})).wait();
                              } else {
                                kolo::recv(kolo::view(&y, {1}));
                              }
                            }),
                "recv of up to 1 element of int32 from any rank with any tag: all other ranks have left the job; the "
                "first was rank 0");
    }
  };
  run_in({2, 0}, ranks);
}

// Rank 1 leaves, rank 2's receive fails, and its exception ends rank 2: rank 0 hears of rank 1.
TEST(PointToPoint, TheFirstToLeaveIsNamedHoweverManyRanksItPassedThrough) {
  for (const int per_node : {0, 1, 2}) {
    const auto ranks = [] {
      int x = 0;
      if (kolo::rank() == 1) return;
      if (kolo::rank() == 2) {
        EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { kolo::recv(kolo::view(&x, {1}), 1); }),
                  "recv of up to 1 element of int32 from rank 1 with any tag: rank 1 has left the job");
        throw std::runtime_error("no data");
      }
      EXPECT_EQ(
          sentence_of(ErrorCode::rank_lost, [&] { kolo::recv(kolo::view(&x, {1}), 2); }),
          "recv of up to 1 element of int32 from rank 2 with any tag: rank 1 has left the job, and rank 2 because "
          "of that");
      EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [] { kolo::barrier(); }),
                "rank 1 has shut down and will not submit unnamed call number 1.");
    };
    EXPECT_EQ(sentence_of(ErrorCode::user_exception,
                          [&] {
                            run_in({3, per_node}, {{"KOLO_LATCH_TIMEOUT_S", "1"}}, ranks);
                          }),
              "rank 2: no data");
  }
}

// Rank 2 waits for rank 1, which has left, and for rank 0, which waits for rank 1, too: both hear of rank 1 at once,
// though rank 0 never receives. Its receive from any rank fails when nobody is left who could send.
TEST(PointToPoint, ASendrecvOfWhichOneHalfFailsGivesUpTheOther) {
  for (const int per_node : {0, 1, 2}) {
    std::atomic<bool> expired{false};
    const auto ranks = [&] {
      std::vector<int> out(100000), in(100000);
      if (kolo::rank() == 1) return;
      if (kolo::rank() == 2) {
        EXPECT_EQ(
            sentence_of(ErrorCode::rank_lost, [&] { kolo::sendrecv(kolo::const_view(out), 0, kolo::view(in), 1); }),
            "recv of up to 100000 elements of int32 from rank 1 with any tag: rank 1 has left the job");
        return;
      }
      sentence_of(ErrorCode::rank_lost, [&] { kolo::recv(kolo::view(in), kolo::any_rank, 5); });
      expired = true;
    };
    run_in({3, per_node}, {{"KOLO_LATCH_TIMEOUT_S", "1"}}, ranks);
    EXPECT_TRUE(expired);
  }
}

// Rank 2's receive fails, and its exception drops the handle of its send to rank 0. If that one has not got the message
// by then, it hears of rank 1.
TEST(PointToPoint, AMessageThatIsGivenUpBecauseOfARankNamesThatRank) {
  const auto ranks = [] {
    std::vector<int> data(1000000);
    int x = 0;
    if (kolo::rank() == 1) return;
    if (kolo::rank() == 2) {
      sentence_of(ErrorCode::rank_lost, [&] { kolo::recv(kolo::view(&x, {1}), 1); });
      const kolo::Handle sent = kolo::send_async(kolo::const_view(data), 0);
      kolo::recv(kolo::view(&x, {1}), 1);
    }
    try {
      kolo::recv(kolo::view(data), 2);
    } catch (const kolo::Error& error) {
      EXPECT_NE(std::string(error.what()).find(": rank 1 has left the job, and rank 2"), std::string::npos)
          << error.what();
    }
  };
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { kolo::run_local(3, ranks); }).rfind("rank 2: ", 0), 0U);
  }
}

// Rank 0 waits for rank 1, which has left, and so rank 2 waits for rank 0 in vain: its end, too, is because of rank 1.
TEST(PointToPoint, AMessageThatExpiresAfterARankHasLeftNamesThatRank) {
  const auto patient = kolo::RecvOptions{}.with_timeout(std::chrono::minutes(1));
  const auto ranks = [&] {
    int x = 0;
    if (kolo::rank() == 1) return;
    if (kolo::rank() == 2) {
      kolo::recv(kolo::view(&x, {1}), 0, 0, patient);
      const std::string sentence = sentence_of(ErrorCode::expired, [&] { kolo::recv(kolo::view(&x, {1}), 0); });
      EXPECT_TRUE(kolo::testing::has(sentence, {"no message that fits", "meanwhile rank 1 has left"})) << sentence;
      return;
    }
    sentence_of(ErrorCode::rank_lost, [&] { kolo::recv(kolo::view(&x, {1}), 1, 0, patient); });
    kolo::send(kolo::const_view(&x, {1}), 2);
    EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { kolo::recv(kolo::view(&x, {1}), 2, 0, patient); }),
              "recv of up to 1 element of int32 from rank 2 with tag 0: rank 1 has left the job, and rank 2 because of "
              "that");
  };
  run_in({3, 0}, {{"KOLO_TIMEOUT_S", "1"}, {"KOLO_LATCH_TIMEOUT_S", "10"}}, ranks);
}

// A rank that gets over a message that fails, and goes on, ends later for a reason of its own.
TEST(PointToPoint, ARankThatWentOnIsNamedForItsOwnException) {
  const auto ranks = [] {
    int x = 0;
    if (kolo::rank() == 1) return;
    if (kolo::rank() == 2) {
      sentence_of(ErrorCode::rank_lost, [&] { kolo::recv(kolo::view(&x, {1}), 1); });
      kolo::recv(kolo::view(&x, {1}), 0);
      throw std::runtime_error("no data");
    }
    kolo::send(kolo::const_view(&x, {1}), 2);
    EXPECT_EQ(sentence_of(ErrorCode::user_exception, [&] { kolo::recv(kolo::view(&x, {1}), 2); }),
              "rank 2 left the job because of an exception: its code threw: no data. The contents of the buffers in "
              "flight are undefined.");
  };
  EXPECT_EQ(sentence_of(ErrorCode::user_exception, [&] { kolo::run_local(3, ranks); }), "rank 2: no data");
}

TEST(PointToPoint, ARankThatDiesIsNamed) {
  for (const int per_node : {0, 1, 2}) {
    const auto run = [&] {
      run_in({3, per_node}, [] {
        int ready = 0;
        if (kolo::rank() == 2) {
          for (int i = 0; i < 2; ++i) kolo::recv(kolo::view(&ready, {1}), kolo::any_rank, 9);
          throw std::runtime_error("out of fuel");
        }
        std::vector<int> much(100000);
        std::vector<kolo::Handle> open;
        open.push_back(kolo::send_async(kolo::const_view(much), 2));
        std::vector<int> room(4);
        open.push_back(kolo::recv_async(kolo::view(room)));
        kolo::send(kolo::const_view(&ready, {1}), 2, 9);
        const std::string sentence = sentence_of(ErrorCode::user_exception, [&] { kolo::recv(kolo::view(room), 2); });
        EXPECT_TRUE(kolo::testing::has(sentence, {"rank 2", "out of fuel"})) << sentence;
        EXPECT_EQ(sentence_of(ErrorCode::user_exception,
                              [&] { kolo::sendrecv(kolo::const_view(much), 2, kolo::view(room), 2); }),
                  sentence);
        for (kolo::Handle& handle : open) {
          EXPECT_EQ(sentence_of(ErrorCode::user_exception, [&] { handle.wait(); }), sentence);
        }
      });
    };
    EXPECT_TRUE(kolo::testing::has(sentence_of(ErrorCode::user_exception, run), {"rank 2", "out of fuel"}));
  }
}

/// Unlike a collective's: the job goes on.
TEST(PointToPoint, AnExceptionThatDestroysAHandleEndsItsMessageAlone) {
  kolo::run_local(2, [] {
    try {
      std::vector<int> room(4);
      const kolo::Handle receive = kolo::recv_async(kolo::view(room), 1 - kolo::rank());
      throw std::runtime_error("oops");
    } catch (const std::runtime_error&) {
    }
    kolo::barrier();
    EXPECT_EQ(exchange_messages(kolo::world(), 7, 4, 30000), "");
  });
}

TEST(PointToPoint, AGroupsMessagesAreItsOwn) {
  kolo::run_local(2, [] {
    const int other = 1 - kolo::rank();
    for (int round = 0; round < 20; ++round) {
      const Group group = Group::of({1, 0});
      int x = round, y = -1, z = -1;
      kolo::send(group, kolo::const_view(&x, {1}), kolo::rank(group) == 0 ? 1 : 0);  // nobody receives the last one
      kolo::send(kolo::const_view(&x, {1}), other, 1);
      kolo::recv(kolo::view(&y, {1}), other);
      EXPECT_EQ(y, round);
      if (round % 2 == 0) {
        const Received got = kolo::recv(group, kolo::view(&z, {1}));
        EXPECT_EQ(z, round);
        EXPECT_EQ(got.source, 1 - kolo::rank(group));
      }
    }
  });
}

TEST(PointToPoint, RefusesWhatIsWrong) {
  kolo::run_local(2, [] {
    std::vector<float> x(3);
    const auto refused = [](auto&& call) { return sentence_of(ErrorCode::invalid_argument, call); };
    EXPECT_EQ(refused([&] { kolo::send(kolo::const_view(x), 2); }),
              "send: to is rank 2, but there are 2 ranks; give one from 0 to 1");
    EXPECT_EQ(refused([&] { kolo::send(kolo::const_view(x), kolo::any_rank); }),
              "send: to is rank -1, but there are 2 ranks; give one from 0 to 1");
    EXPECT_EQ(refused([&] { (void)kolo::send_async(kolo::const_view(x), 1, -1); }),
              "send_async: its tag is -1; give one that is not negative");
    EXPECT_EQ(refused([&] { kolo::recv(kolo::view(x), -2); }),
              "recv: from is rank -2, but there are 2 ranks; give one from 0 to 1, or any_rank");
    const Group alone = Group::of({kolo::rank()});
    EXPECT_EQ(refused([&] { kolo::send(alone, kolo::const_view(x), 1); }),
              "send: to is rank 1, but the group has 1 rank; give one from 0 to 0");
    EXPECT_EQ(refused([&] { (void)kolo::recv_async(alone, kolo::view(x), 1); }),
              "recv_async: from is rank 1, but the group has 1 rank; give one from 0 to 0, or any_rank");
    EXPECT_EQ(refused([&] { (void)kolo::recv_async(kolo::view(x), 0, -2); }),
              "recv_async: its tag is -2; give one that is not negative, or any_tag");
    EXPECT_EQ(refused([&] { kolo::recv(kolo::view(static_cast<float*>(nullptr), {3}), 0); }),
              "recv: the tensor is a null pointer, but its shape [3] has 3 elements; give the address of the first");
    EXPECT_EQ(
        refused([&] { kolo::send(kolo::const_view(x), 1, 0, kolo::SendOptions{}.with_timeout(milliseconds(0))); }),
        "send: its timeout is 0 ns; give a time greater than zero, or none for KOLO_TIMEOUT_S");
    EXPECT_EQ(sentence_of(ErrorCode::unsupported,
                          [&] {
                            kolo::recv(kolo::TensorView(x.data(), kolo::DType::float32, {3},
                                                        kolo::Device{kolo::DeviceKind::cuda, 0}));
                          }),
              "recv: it receives into cuda:0 from any rank, which is for memory of the CPU alone; name the rank that "
              "sends");
    std::vector<float> y(3);
    const auto exchange = [&](int to, int from, const kolo::SendRecvOptions& options = {}) {
      return refused([&] { kolo::sendrecv(kolo::const_view(x), to, kolo::view(y), from, options); });
    };
    EXPECT_EQ(exchange(2, 1), "sendrecv, sending: to is rank 2, but there are 2 ranks; give one from 0 to 1");
    EXPECT_EQ(exchange(1, 2),
              "sendrecv, receiving: from is rank 2, but there are 2 ranks; give one from 0 to 1, or any_rank");
    EXPECT_EQ(exchange(1, 1, kolo::SendRecvOptions{}.with_send_tag(kolo::any_tag)),
              "sendrecv, sending: its tag is -1; give one that is not negative");
    EXPECT_EQ(exchange(1, 1, kolo::SendRecvOptions{}.with_recv_tag(-2)),
              "sendrecv, receiving: its tag is -2; give one that is not negative, or any_tag");
    EXPECT_EQ(refused([&] { kolo::sendrecv(kolo::const_view(x), 1, kolo::view(x), 1); }),
              "sendrecv: the tensor that it sends and the one that it receives into overlap; give it two");
    EXPECT_EQ(refused([&] { kolo::sendrecv(kolo::const_view(x.data() + 2, 1), 1, kolo::view(x), 1); }),
              "sendrecv: the tensor that it sends and the one that it receives into overlap; give it two");
    const Group none = kolo::world().split(kolo::rank() == 0 ? kolo::kNoGroup : 0);
    if (kolo::rank() == 0) {
      EXPECT_EQ(refused([&] { kolo::send(none, kolo::const_view(x), 0); }),
                "this rank is no member of the group: it asked Group::split for none (kNoGroup)");
    }
    kolo::Handle open = kolo::recv_async(kolo::view(x), kolo::rank(), 9);
    std::promise<std::string> inside;
    kolo::Handle barrier = kolo::barrier_async("b");
    barrier.on_done([&, &context = kolo::current_context()](const kolo::Status&) {
      float y = 0;
      inside.set_value(refused([&] { kolo::recv(context, kolo::view(&y, {1}), 0); }));
    });
    barrier.wait();
    kolo::send(kolo::const_view(x), kolo::rank(), 9);
    open.wait();
    kolo::barrier();
    EXPECT_EQ(inside.get_future().get(),
              "a callback of on_done must not wait for an operation: start it there, and wait elsewhere");
  });
}

}  // namespace
