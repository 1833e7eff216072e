// SPDX-License-Identifier: Apache-2.0
//
// Ranks meet; and what a meeting is made of.
#include "launch/exchange.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/handshake.hpp"
#include "launch/connection.hpp"
#include "launch/start.hpp"
#include "meetings.hpp"

namespace kolo::launch {
namespace {

TEST(Meeting, ByTcpAtAPortGivenBack) {
  for (const int size : {1, 2, 5}) expect_meeting(store::tcp("127.0.0.1", 0), size);
  expect_meeting(store::tcp("localhost", 0), 3);
  expect_meeting(store::tcp("127.0.0.1", 0), 3, "a secret");
}

TEST(Meeting, ByIPv6) {
  int error = 0;
  std::string wrong;
  if (!bind_socket(resolve("::1", 0, wrong).front(), error).valid()) GTEST_SKIP() << "no IPv6 on this machine";
  expect_meeting(store::tcp("::1", 0), 3);
}

TEST(Meeting, TwiceAtTheSamePort) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  for (int time = 0; time < 5; ++time) expect_meeting(where, 3);
}

TEST(Meeting, ByAFileOrADirectory) {
  const Folder folder;
  for (int time = 0; time < 2; ++time) {  // what the first job has left does no harm
    expect_meeting(store::file(folder.path() + "/job"), 4);
    expect_meeting(store::file(folder.path()), 4, "a secret");
  }
  struct stat file = {};
  ASSERT_EQ(::stat((folder.path() + "/job").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600U);
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/kolo-rank-0"));
}

TEST(Meeting, ByAnObjectOfThePrograms) {
  const auto mine = std::make_shared<MapStore>();
  for (int time = 0; time < 2; ++time) expect_meeting(mine, 4);
}

TEST(Meeting, LongWords) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  const std::string word(std::size_t{3} << 20, 'x');
  std::vector<std::function<std::string()>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back([=, &word] {
      const auto exchange = join(where, place_of(rank, 3));
      return exchange->exchange("step", word, kLong, base::now()) == Words(3, word) ? "all there" : "not all there";
    });
  }
  EXPECT_EQ(run(ranks), Words(3, "all there"));
}

TEST(Meeting, TheNextOfTheFreePorts) {
  const std::vector<std::uint16_t> ports = own_ports("a test of ports");
  int error = 0;
  std::string wrong;
  const base::UniqueFd other = listen_at(resolve("127.0.0.1", ports[0], wrong).front(), error);
  expect_meeting(place_of_ports("127.0.0.1", ports), 3);
}

// ---------------------------------------------------------------- pieces

/// A port of the range from which the system gives ports to those who connect may be met by itself.
TEST(Sockets, ToMeetOneselfIsToBeRefused) {
  int error = 0;
  std::string wrong;
  const base::UniqueFd fd = bind_socket(resolve("127.0.0.1", 0, wrong).front(), error);
  const Endpoint own = own_endpoint(fd.get());
  ASSERT_EQ(::fcntl(fd.get(), F_SETFL, 0), 0);
  ASSERT_EQ(::connect(fd.get(), own.raw(), own.length), 0);
  EXPECT_EQ(connect_error(fd.get()), ECONNREFUSED);
}

TEST(Handshake, EveryByteOfAHelloMatters) {
  const base::Word greeted = base::random_word();
  const base::HelloBytes right = base::make_hello("key", greeted, {3, 8, 1234, base::random_word()});
  std::string wrong;
  const auto hello = base::judge_hello("key", greeted, right, wrong);
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->rank, 3);
  EXPECT_EQ(hello->size, 8);
  EXPECT_EQ(hello->number, 1234);
  for (std::size_t i = 0; i < right.size(); ++i) {
    base::HelloBytes other = right;
    other[i] ^= 1;
    EXPECT_FALSE(base::judge_hello("key", greeted, other, wrong)) << i;
  }
  EXPECT_FALSE(base::judge_hello("key", base::random_word(), right, wrong));  // of another connection
  EXPECT_FALSE(base::judge_hello("Key", greeted, right, wrong));
}

TEST(Frames, NoLongerThanAgreed) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const base::Word key = base::random_word();
  Connection a(base::UniqueFd{ends[0]}, {key, true, "rank 3"}, 10);
  Connection b(base::UniqueFd{ends[1]}, {key, false, "rank 0"}, 10);
  a.send({FrameType::result, 7, "0123456789"});
  b.pump();
  const auto frame = b.take();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->type, FrameType::result);
  EXPECT_EQ(frame->step, 7U);
  EXPECT_EQ(frame->body, "0123456789");
  EXPECT_FALSE(b.take());
  a.send({FrameType::result, 8, "0123456789a"});
  b.pump();
  EXPECT_EQ(sentence_of([&] { static_cast<void>(b.take()); }),
            "rank 0 sent what this release of Kolo cannot read; all ranks must run the same release");
}

/// What arrives at the other end when `change` is done to the bytes of two frames.
std::string after(const std::function<void(std::string&)>& change) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  int behind[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, behind), 0);
  const base::UniqueFd entrance{ends[1]};
  const base::UniqueFd exit{behind[0]};
  const base::Word key = base::random_word();
  Connection rank(base::UniqueFd{ends[0]}, {key, false, "rank 0"}, 100);
  Connection root(base::UniqueFd{behind[1]}, {key, true, "rank 3"}, 100);
  rank.send({FrameType::contribution, 1, "first"});
  rank.send({FrameType::contribution, 2, "second"});
  std::string bytes(1000, '\0');
  bytes.resize(static_cast<std::size_t>(::recv(entrance.get(), bytes.data(), bytes.size(), 0)));
  change(bytes);
  EXPECT_EQ(::send(exit.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  std::string taken;
  const std::string said = sentence_of([&] {
    root.pump();
    while (const auto frame = root.take()) taken += frame->body + ";";
  });
  return taken + said;
}

TEST(Frames, NothingCanBeChangedOnTheWay) {
  constexpr std::size_t kFirst = 16 + 5 + 32;
  const std::string no = "what came from rank 3 is not what it sent: another process stands between it and this rank";
  EXPECT_EQ(after([](std::string&) {}), "first;second;no error");
  for (const std::size_t at : {std::size_t{4}, std::size_t{16}, std::size_t{20}, kFirst - 1}) {
    EXPECT_EQ(after([&](std::string& bytes) { bytes[at] ^= 1; }), no) << at;
  }
  EXPECT_EQ(after([](std::string& bytes) { bytes.erase(0, kFirst); }), no);                             // left out
  EXPECT_EQ(after([](std::string& bytes) { bytes.insert(kFirst, bytes, 0, kFirst); }), "first;" + no);  // said twice
}

}  // namespace
}  // namespace kolo::launch
