// SPDX-License-Identifier: Apache-2.0
//
// Strangers at rank 0's door, and those that stand in for rank 0.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/handshake.hpp"
#include "launch/reception.hpp"
#include "launch/sockets.hpp"
#include "launch/start.hpp"
#include "meetings.hpp"

namespace kolo::launch {
namespace {

base::UniqueFd connect_blocking(std::uint16_t port) {
  base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::string wrong;
  const Endpoint endpoint = resolve("127.0.0.1", port, wrong).front();
  while (::connect(fd.get(), endpoint.raw(), endpoint.length) != 0) {
    fd.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // rank 0 does not listen yet, or any more
    if (!fd.valid()) break;
    std::this_thread::yield();
  }
  return fd;
}

/// What a stranger is told until its connection ends.
std::string read_all(int fd) {
  std::string all;
  char piece[4096];
  for (ssize_t got = 0; (got = ::recv(fd, piece, sizeof piece, 0)) > 0;)
    all.append(piece, static_cast<std::size_t>(got));
  return all;
}

/// 2000 connections, 16 at a time, of seven kinds, while a job of 3 waits for its last rank; then it comes.
TEST(Strangers, LearnNothingAndDisturbNothing) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  // What a rank of this job says at another rank 0, or one that looks like it; to be repeated. The job's key follows of
  // its secret alone.
  const JobKey job_key{"secret", "a test"};
  const std::string key = fixed_directions("127.0.0.1", {where.port()}, job_key)->look(base::now()).key;
  const base::HelloBytes hello = base::make_hello(key, base::random_word(), {1, 3, 1, base::random_word()});
  const std::string recorded(reinterpret_cast<const char*>(hello.data()), hello.size());
  Words said;
  std::thread job([&] {
    said = run({rank_of(where, place_of(0, 3), kLong, "secret"), rank_of(where, place_of(1, 3), kLong, "secret")});
  });
  std::string most;  // what any of them was told
  for (int round = 0; round < 125; ++round) {
    std::vector<base::UniqueFd> open;
    for (int i = 0; i < 16; ++i) {
      base::UniqueFd fd = connect_blocking(where.port());
      std::string words;
      switch (i % 7) {
      case 0:  // says nothing, and goes
        break;
      case 1:
        words = "GET / HTTP/1.1\r\n\r\n";
        break;
      case 2:
        words = recorded;
        break;
      case 3:
        words = recorded.substr(0, 30);  // half
        break;
      case 4:
        words.assign(100000, '\xff');
        break;
      case 5: {
        const base::HelloBytes hello = base::make_hello("", {}, {1, 3, 1, base::random_word()});
        words.assign(reinterpret_cast<const char*>(hello.data()), hello.size());
        break;
      }
      default:
        open.push_back(std::move(fd));  // stays, half open
        continue;
      }
      if (!words.empty()) static_cast<void>(::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL));
      ::shutdown(fd.get(), SHUT_WR);
      const std::string told = read_all(fd.get());
      if (told.size() > most.size()) most = told;
    }
  }
  EXPECT_EQ(run({rank_of(where, place_of(2, 3), kLong, "secret")}), Words(1, "word 0;word 1;word 2;"));
  job.join();
  EXPECT_EQ(said, Words(2, "word 0;word 1;word 2;"));
  EXPECT_EQ(most.size(), sizeof(base::GreetingBytes));  // a random word, and nothing of the job
}

TEST(Strangers, HalfOpenOnesMakeRoom) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  Words said;
  std::thread job([&] { said = run({rank_of(where, place_of(0, 2))}); });
  std::vector<base::UniqueFd> open;
  for (std::size_t i = 0; i < 3 * Reception::kStrangers; ++i) open.push_back(connect_blocking(where.port()));
  EXPECT_EQ(run({rank_of(where, place_of(1, 2))}), Words(1, "word 0;word 1;"));
  job.join();
  EXPECT_EQ(said, Words(1, "word 0;word 1;"));
}

/// A listener, and strangers that have connected to it.
struct Door {
  explicit Door(std::size_t most)
      : reception(
            [this] {
              Listening listening;
              int error = 0;
              std::string wrong;
              listening.sockets.push_back(listen_at(resolve("127.0.0.1", 0, wrong).front(), error));
              port = own_endpoint(listening.sockets.front().get()).port();
              listening.key = "key";
              return listening;
            }(),
            most) {}
  /// From an address of this machine's own.
  base::UniqueFd connect_from(const char* address) const {
    std::string wrong;
    int error = 0;
    base::UniqueFd fd = bind_socket(resolve(address, 0, wrong).front(), error);
    EXPECT_TRUE(fd.valid()) << error;
    EXPECT_EQ(::fcntl(fd.get(), F_SETFL, 0), 0);
    const Endpoint endpoint = resolve("127.0.0.1", port, wrong).front();
    EXPECT_EQ(::connect(fd.get(), endpoint.raw(), endpoint.length), 0);
    return fd;
  }
  /// Those that are let in when this one, which knows the key, has said its Hello.
  std::vector<Newcomer> hello_of(const base::UniqueFd& fd) {
    base::GreetingBytes greeting{};
    EXPECT_EQ(::recv(fd.get(), greeting.data(), greeting.size(), MSG_WAITALL), static_cast<ssize_t>(greeting.size()));
    base::Word word{};
    EXPECT_EQ(base::judge_greeting(greeting, word), "");
    const base::HelloBytes hello = base::make_hello("key", word, {1, 2, ::getpid(), base::random_word()});
    EXPECT_EQ(::send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL), static_cast<ssize_t>(hello.size()));
    return reception.serve();
  }
  std::uint16_t port = 0;
  Reception reception;
};

/// One address that connects faster than a rank can answer does not drive out another's.
TEST(Strangers, TheBusiestAddressMakesRoom) {
  Door door(8);
  const base::UniqueFd rank = door.connect_from("127.0.0.2");
  EXPECT_TRUE(door.reception.serve().empty());
  std::vector<base::UniqueFd> open;
  for (int i = 0; i < 100; ++i) {
    open.push_back(door.connect_from("127.0.0.1"));
    EXPECT_TRUE(door.reception.serve().empty());
  }
  const std::vector<Newcomer> known = door.hello_of(rank);
  ASSERT_EQ(known.size(), 1U);
  EXPECT_EQ(known.front().hello.rank, 1);
}

/// Strangers that take all descriptors do not end the start.
TEST(Strangers, WhereDescriptorsRunOut) {
  Door door(1000);
  std::vector<base::UniqueFd> open;
  for (int i = 0; i < 100; ++i) open.push_back(door.connect_from("127.0.0.1"));
  const base::UniqueFd rank = door.connect_from("127.0.0.1");
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(rank.get()) + 20;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_TRUE(door.reception.serve().empty());
  const std::vector<Newcomer> known = door.hello_of(rank);
  EXPECT_EQ(known.size(), 1U);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Strangers, NobodyListensOnceAllHaveCome) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  std::vector<std::unique_ptr<Exchange>> kept(2);
  const auto stays = [&](int rank) {
    return [&, rank] {
      kept[static_cast<std::size_t>(rank)] = join(where, place_of(rank, 2));
      return joined(kept[static_cast<std::size_t>(rank)]->exchange("settings", "", kLong, base::now()));
    };
  };
  run({stays(0), stays(1)});
  const base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::string wrong;
  const Endpoint endpoint = resolve("127.0.0.1", where.port(), wrong).front();
  EXPECT_EQ(::connect(fd.get(), endpoint.raw(), endpoint.length), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
}

/// Who listens at rank 0's address without the key is not believed.
TEST(Strangers, AFalseRank0IsNotBelieved) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  int error = 0;
  std::string wrong;
  base::UniqueFd other = listen_at(resolve("127.0.0.1", where.port(), wrong).front(), error);
  ASSERT_EQ(::fcntl(other.get(), F_SETFL, 0), 0);
  std::thread impostor([&] {
    const base::UniqueFd fd(::accept(other.get(), nullptr, nullptr));
    const base::GreetingBytes greeting = base::make_greeting(base::random_word());
    const base::Word welcome = base::random_word();
    static_cast<void>(::send(fd.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL));
    base::HelloBytes hello{};
    static_cast<void>(::recv(fd.get(), hello.data(), hello.size(), MSG_WAITALL));
    static_cast<void>(::send(fd.get(), welcome.data(), welcome.size(), MSG_NOSIGNAL));
    read_all(fd.get());  // until the rank has gone
    other.reset();
  });
  Words said;
  std::thread rank1([&] { said = run({rank_of(where, place_of(1, 2), kLong, "secret")}); });
  impostor.join();
  EXPECT_EQ(run({rank_of(where, place_of(0, 2), kLong, "secret")}), Words(1, "word 0;word 1;"));
  rank1.join();
  EXPECT_EQ(said, Words(1, "word 0;word 1;"));
}

/// Passes bytes on between a rank and rank 0; of those that go to the rank one behind the handshake is changed.
class Relay {
 public:
  Relay(base::UniqueFd listener, std::uint16_t to) : listener_(std::move(listener)) {
    EXPECT_EQ(::fcntl(listener_.get(), F_SETFL, 0), 0);
    thread_ = std::thread([this, to] { run(to); });
  }
  ~Relay() { thread_.join(); }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

 private:
  void run(std::uint16_t to) {
    const base::UniqueFd rank(::accept(listener_.get(), nullptr, nullptr));
    listener_.reset();
    const base::UniqueFd root = connect_blocking(to);
    std::size_t down = 0;
    while (true) {
      pollfd both[2] = {{rank.get(), POLLIN, 0}, {root.get(), POLLIN, 0}};
      if (::poll(both, 2, -1) < 0) return;
      for (int i = 0; i < 2; ++i) {
        if (both[i].revents == 0) continue;
        char piece[4096];
        const ssize_t got = ::recv(both[i].fd, piece, sizeof piece, 0);
        if (got <= 0) return;
        constexpr std::size_t kChanged = sizeof(base::GreetingBytes) + sizeof(base::WelcomeBytes) + 17;
        const std::size_t next = down + static_cast<std::size_t>(got);
        if (i == 1 && down <= kChanged && kChanged < next) piece[kChanged - down] ^= 1;
        if (i == 1) down = next;
        static_cast<void>(::send(both[1 - i].fd, piece, static_cast<std::size_t>(got), MSG_NOSIGNAL));
      }
    }
  }
  base::UniqueFd listener_;
  std::thread thread_;
};

/// A process that listens where rank 0 would, and passes everything on to it, can read and end a start, not change it.
TEST(Strangers, OneInTheMiddleChangesNothing) {
  const std::vector<std::uint16_t> ports = own_ports("a test of one in the middle");
  int error = 0;
  std::string wrong;
  base::UniqueFd listener = listen_at(resolve("127.0.0.1", ports[0], wrong).front(), error);
  ASSERT_TRUE(listener.valid()) << error;
  std::unique_ptr<Exchange> root = join(place_of_ports("127.0.0.1", {ports[1]}), place_of(0, 2), "secret");
  Words said;
  {
    const MeetingPlace relayed = place_of_ports("127.0.0.1", {ports[0]});
    const Relay relay(std::move(listener), ports[1]);
    said = run({[&] {
                  const std::string first =
                      sentence_of([&] { static_cast<void>(root->exchange("settings", "zero", kLong, base::now())); });
                  root.reset();
                  return first;
                },
                [&] { return rank_of(relayed, place_of(1, 2), kLong, "secret")(); }});
  }
  EXPECT_EQ(said[1], "what came from rank 0 is not what it sent: another process stands between it and this rank");
}

}  // namespace
}  // namespace kolo::launch
