// SPDX-License-Identifier: Apache-2.0
#include "base/poller.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

namespace kolo::base {
namespace {

using std::chrono::nanoseconds;

struct Pair {
  UniqueFd near;
  UniqueFd far;
};
Pair make_socket_pair() {
  std::array<int, 2> fds{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesWhatItOwns) {
  Pair pair = make_socket_pair();
  const int near = pair.near.get();
  {
    UniqueFd moved = std::move(pair.near);
    EXPECT_FALSE(pair.near.valid());
    EXPECT_EQ(moved.get(), near);
    EXPECT_TRUE(is_open(near));
  }
  EXPECT_FALSE(is_open(near));
  const int far = pair.far.release();
  EXPECT_FALSE(pair.far);
  EXPECT_TRUE(is_open(far));
  pair.far.reset(far);
  pair.far = UniqueFd();
  EXPECT_FALSE(is_open(far));
}

TEST(UniqueFdDeathTest, ADoubleCloseIsOurBug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Pair pair = make_socket_pair();
  EXPECT_EXIT(
      {
        ::close(pair.near.get());
        pair.near.reset();
      },
      testing::KilledBySignal(SIGABRT), "closed behind its owner's back");
}

TEST(EventFd, ManySignalsAreOne) {
  const EventFd bell;
  EXPECT_FALSE(bell.drain());
  bell.signal();
  bell.signal();
  EXPECT_TRUE(bell.drain());
  EXPECT_FALSE(bell.drain());
}

TEST(EventFd, ASaturatedCounterIsASignal) {
  const EventFd bell;
  const std::uint64_t most = ~std::uint64_t{0} - 1;
  ASSERT_EQ(::write(bell.fd(), &most, sizeof most), static_cast<ssize_t>(sizeof most));
  bell.signal();
  EXPECT_TRUE(bell.drain());
  EXPECT_FALSE(bell.drain());
}

TEST(Poller, ReportsTagsAndEvents) {
  Pair a = make_socket_pair();
  Pair b = make_socket_pair();
  Poller poller;
  poller.add(a.near.get(), 11);
  poller.add(b.near.get(), ~std::uint64_t{0}, Poller::kReadable | Poller::kWritable);
  std::vector<Poller::Event> events{{99, 99}};
  poller.poll(events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].tag, ~std::uint64_t{0});
  EXPECT_EQ(events[0].events, Poller::kWritable);

  ASSERT_EQ(::write(a.far.get(), "x", 1), 1);
  poller.wait(std::nullopt, events);
  ASSERT_EQ(events.size(), 2U);
  std::sort(events.begin(), events.end(), [](const auto& x, const auto& y) { return x.tag < y.tag; });
  EXPECT_EQ(events[0].tag, 11U);
  EXPECT_EQ(events[0].events, Poller::kReadable);
}

TEST(Poller, AddingAgainChangesTagAndInterest) {
  Pair pair = make_socket_pair();
  Poller poller;
  std::vector<Poller::Event> events;
  poller.add(pair.near.get(), 1, Poller::kWritable);
  poller.add(pair.near.get(), 2, Poller::kReadable);
  poller.poll(events);
  EXPECT_TRUE(events.empty());
  ASSERT_EQ(::write(pair.far.get(), "x", 1), 1);
  poller.poll(events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].tag, 2U);
}

TEST(Poller, WhatIsWatchedOnceIsReportedOnceForEachAdd) {
  Poller poller;
  const EventFd bell;
  bell.signal();
  std::vector<Poller::Event> events;
  for (int turn = 0; turn < 2; ++turn) {
    poller.add(bell.fd(), 5, Poller::kReadable | Poller::kOnce);
    poller.poll(events);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events.front().tag, 5U);
    EXPECT_EQ(events.front().events, Poller::kReadable);
    poller.poll(events);
    EXPECT_TRUE(events.empty());
  }
}

TEST(Poller, RemovedIsSilentAndMayBeRemovedAgain) {
  Pair pair = make_socket_pair();
  Poller poller;
  std::vector<Poller::Event> events;
  poller.add(pair.near.get(), 1, Poller::kWritable);
  poller.remove(pair.near.get());
  poller.remove(pair.near.get());
  poller.remove(-1);
  poller.poll(events);
  EXPECT_TRUE(events.empty());
}

TEST(Poller, AHangUpIsReportedWithoutInterest) {
  Pair pair = make_socket_pair();
  Poller poller;
  std::vector<Poller::Event> events;
  poller.add(pair.near.get(), 5, 0);
  ASSERT_EQ(::write(pair.far.get(), "x", 1), 1);
  poller.poll(events);
  EXPECT_TRUE(events.empty());
  pair.far.reset();
  poller.wait(std::nullopt, events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].tag, 5U);
  EXPECT_EQ(events[0].events, Poller::kClosed);
}

TEST(Poller, ATimeoutPasses) {
  Poller poller;
  std::vector<Poller::Event> events{{99, 99}};
  poller.wait(nanoseconds(1), events);
  EXPECT_TRUE(events.empty());
  poller.wait(nanoseconds(-5), events);
  EXPECT_TRUE(events.empty());
}

TEST(Poller, WakesForAnotherThread) {
  const EventFd bell;
  Poller poller;
  poller.add(bell.fd(), 3);
  std::vector<Poller::Event> events;
  std::thread other([&] { bell.signal(); });
  poller.wait(nanoseconds::max(), events);
  other.join();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].tag, 3U);
}

TEST(Poller, MoreThanOneCallReports) {
  std::vector<EventFd> bells(100);
  Poller poller;
  for (std::size_t i = 0; i < bells.size(); ++i) {
    poller.add(bells[i].fd(), i);
    bells[i].signal();
  }
  std::vector<bool> seen(bells.size(), false);
  std::vector<Poller::Event> events;
  for (poller.poll(events); !events.empty(); poller.poll(events)) {
    for (const auto& event : events) {
      EXPECT_FALSE(seen[event.tag]);
      seen[event.tag] = true;
      EXPECT_TRUE(bells[event.tag].drain());
    }
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 100);
}

TEST(Poller, RefusesWhatCannotBeWatched) {
  Poller poller;
  try {
    poller.add(-1, 0);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    EXPECT_EQ(error.status().message(), "epoll_ctl: watching descriptor -1: Bad file descriptor (errno 9)");
  }
}

TEST(Poller, SleepsLessThanAMillisecond) {
  const Pair pair = make_socket_pair();
  Poller poller;
  poller.add(pair.near.get(), 3, Poller::kReadable);
  std::vector<Poller::Event> events;
  poller.wait(std::chrono::microseconds(20), events);
  EXPECT_TRUE(events.empty());
  ASSERT_EQ(::write(pair.far.get(), "x", 1), 1);
  poller.wait(std::chrono::microseconds(900), events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].tag, 3U);
}

}  // namespace
}  // namespace kolo::base
