// SPDX-License-Identifier: Apache-2.0
//
// Ranks meet, or cannot: as threads here, by real sockets.
#include "launch/exchange.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <kolo/error.hpp>

#include "base/mutex.hpp"
#include "launch/connection.hpp"
#include "launch/file_store.hpp"
#include "launch/handshake.hpp"
#include "launch/meeting_place.hpp"
#include "launch/reception.hpp"
#include "launch/start.hpp"

namespace kolo::launch {
namespace {

using Words = std::vector<std::string>;
constexpr auto kLong = std::chrono::seconds(30);
constexpr auto kSome = std::chrono::seconds(1);          // others must come meanwhile
constexpr auto kShort = std::chrono::milliseconds(100);  // nobody comes

Place place_of(int rank, int size) { return {rank, size, "KOLO_RANK", "KOLO_SIZE"}; }

std::unique_ptr<Exchange> join(const MeetingPlace& where, Place place, const std::string& secret = {}) {
  return make_exchange(place, directions_to(where, "", {secret, "a test"}));
}

std::string sentence_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.status().message();
  }
  return "no error";
}

/// Numbers of processes and ports are not the same twice.
std::string steady(std::string text) {
  text = std::regex_replace(text, std::regex("process [0-9]+"), "process P");
  return std::regex_replace(text, std::regex("127\\.0\\.0\\.1:[0-9]+"), "127.0.0.1:PORT");
}

/// Each on a thread of its own; what each got, or its sentence.
Words run(const std::vector<std::function<std::string()>>& ranks) {
  Words results(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        results[i] = ranks[i]();
      } catch (const Error& error) {
        results[i] = error.status().message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::string& result : results) result = steady(result);
  return results;
}

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += word + ";";
  return text;
}

/// One step.
std::function<std::string()> rank_of(const MeetingPlace& where, Place place, base::Duration patience = kLong,
                                     const std::string& secret = {}) {
  return [=] {
    const auto exchange = join(where, place, secret);
    return joined(exchange->exchange("settings", "word " + std::to_string(place.rank), patience, base::now()));
  };
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "kolo-launch-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A program's own.
class MapStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const base::MutexLock lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::optional<std::string> get(const std::string& key, std::chrono::nanoseconds timeout) override {
    const base::MutexLock lock(mutex_);
    const base::Time deadline = base::now() + timeout;
    while (values_.count(key) == 0) {
      if (!changed_.wait_until(mutex_, deadline)) return std::nullopt;
    }
    return values_[key];
  }

 private:
  base::Mutex mutex_;
  base::ConditionVariable changed_;
  std::map<std::string, std::string> values_ KOLO_GUARDED_BY(mutex_);
};

// ---------------------------------------------------------------- starts that work

void expect_meeting(const MeetingPlace& where, int size, const std::string& secret = {}) {
  std::vector<std::function<std::string()>> ranks;
  std::string all;
  for (int rank = 0; rank < size; ++rank) {
    all += "word " + std::to_string(rank) + ";";
    ranks.push_back([=] {
      const auto exchange = join(where, place_of(rank, size), secret);
      std::string last;
      for (int step = 0; step < 3; ++step) {
        last = joined(exchange->exchange("step", "word " + std::to_string(rank), kLong, base::now()));
      }
      return last;
    });
  }
  EXPECT_EQ(run(ranks), Words(static_cast<std::size_t>(size), all));
}

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
  const std::vector<std::uint16_t> ports = ports_of("a test of ports");
  int error = 0;
  std::string wrong;
  const base::UniqueFd other = listen_at(resolve("127.0.0.1", ports[0], wrong).front(), error);
  expect_meeting(place_of_ports("127.0.0.1", ports), 3);
}

// ---------------------------------------------------------------- starts that cannot work

TEST(WrongStart, WhoIsMissingIsNamedEverywhere) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  const std::string sentence =
      "ranks 1 and 3 did not reach the step \"settings\" of the start within 1 s (KOLO_CONNECT_TIMEOUT_S): a process "
      "has not joined yet, is stopped, or has ended";
  EXPECT_EQ(run({rank_of(where, place_of(0, 4), kSome), rank_of(where, place_of(2, 4), kSome)}), Words(2, sentence));
}

TEST(WrongStart, WithoutRank0) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  EXPECT_EQ(run({rank_of(where, place_of(1, 2), kShort)})[0],
            "rank 1 did not find rank 0 by tcp://127.0.0.1:PORT within 0.1 s (KOLO_CONNECT_TIMEOUT_S): 127.0.0.1:PORT: "
            "Connection refused (errno 111); rank 0 has not started yet, has ended, or cannot be reached from here");
  const Folder folder;
  EXPECT_EQ(sentence_of(rank_of(store::file("/nowhere/job"), place_of(0, 2))).substr(0, 38),
            "rank 0 cannot write its address to /no");
  EXPECT_EQ(run({rank_of(store::file(folder.path()), place_of(1, 2), kShort)})[0],
            "rank 1 did not find rank 0 by file://" + folder.path() +
                " within 0.1 s (KOLO_CONNECT_TIMEOUT_S): rank 0 has left no address in file://" + folder.path() +
                "; rank 0 has not started yet, has ended, or cannot be reached from here");
}

TEST(WrongStart, ARankThatCameTwice) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  const std::string sentence = "rank 1 came twice: process P at 127.0.0.1:PORT and process P at 127.0.0.1:PORT; give "
                               "every process a rank of its "
                               "own (KOLO_RANK)";
  EXPECT_EQ(run({rank_of(where, place_of(0, 3)), rank_of(where, place_of(1, 3)), rank_of(where, place_of(1, 3))}),
            Words(3, sentence));
}

TEST(WrongStart, AnotherSize) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  const std::string sentence = "rank 2 (process P at 127.0.0.1:PORT) was told that the job has 4 ranks, and rank 0 "
                               "that it has 2: give all ranks "
                               "the same size (KOLO_SIZE)";
  EXPECT_EQ(run({rank_of(where, place_of(0, 2)), rank_of(where, place_of(2, 4))}), Words(2, sentence));
}

TEST(WrongStart, AnotherListensAtThePort) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  int error = 0;
  std::string wrong;
  const base::UniqueFd other = listen_at(resolve("127.0.0.1", where.port(), wrong).front(), error);
  EXPECT_EQ(steady(sentence_of([&] { static_cast<void>(join(where, place_of(0, 2))); })),
            "rank 0 cannot listen at tcp://127.0.0.1:PORT: Address already in use (errno 98); another job, or another "
            "program, listens there: choose another port");
}

TEST(WrongStart, AnotherKey) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  const Words said =
      run({rank_of(where, place_of(0, 2), kSome, "mine"), rank_of(where, place_of(1, 2), kSome, "another")});
  EXPECT_EQ(
      said[1],
      "rank 1 did not find rank 0 by tcp://127.0.0.1:PORT within 1 s (KOLO_CONNECT_TIMEOUT_S): what listens at "
      "127.0.0.1:PORT does not take this rank in: it is another job's rank 0, or has another KOLO_JOB_KEY; rank 0 "
      "has not started yet, has ended, or cannot be reached from here");
  EXPECT_TRUE(std::regex_match(
      said[0],
      std::regex("rank 1 did not reach the step \"settings\" of the start within 1 s "
                 "\\(KOLO_CONNECT_TIMEOUT_S\\): a process has not joined yet, is stopped, or has ended; [0-9]+ "
                 "connections? (was|were) refused.*: 127.0.0.1:PORT is of another job, or has another "
                 "KOLO_JOB_KEY")))
      << said[0];
}

TEST(WrongStart, AStaleFile) {
  const Folder folder;
  const MeetingPlace where = store::file(folder.path() + "/job");
  { const auto earlier = join(where, place_of(0, 2), "the key of an earlier job"); }
  EXPECT_EQ(
      run({rank_of(where, place_of(1, 2), kShort, "mine")})[0],
      "rank 1 did not find rank 0 by " + where.describe() +
          " within 0.1 s (KOLO_CONNECT_TIMEOUT_S): " + where.describe() +
          " is stale, or of another job: what it holds was made with another KOLO_JOB_KEY; rank 0 has not started "
          "yet, has ended, or cannot be reached from here");
  std::ofstream(folder.path() + "/job") << "somebody's notes";
  EXPECT_EQ(
      run({rank_of(where, place_of(1, 2), kShort)})[0],
      "rank 1 did not find rank 0 by " + where.describe() +
          " within 0.1 s (KOLO_CONNECT_TIMEOUT_S): " + where.describe() +
          " holds something that is not of Kolo, or of another release; rank 0 has not started yet, has ended, or "
          "cannot be reached from here");
}

TEST(WrongStart, ARankThatEndsIsNamedAtOnce) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  const auto two_steps = [&](int rank) {
    return [&where, rank] {
      const auto exchange = join(where, place_of(rank, 3));
      static_cast<void>(exchange->exchange("settings", "", kLong, base::now()));
      if (rank == 2) return std::string("gone");
      return joined(exchange->exchange("addresses", "", kLong, base::now()));
    };
  };
  const std::string sentence =
      "rank 2 (process P at 127.0.0.1:PORT) ended, or left the start, before the step \"addresses\"";
  EXPECT_EQ(run({two_steps(0), two_steps(1), two_steps(2)}), (Words{sentence, sentence, "gone"}));
}

TEST(WrongStart, Rank0ThatEndsIsNamedAtOnce) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  const auto two_steps = [&](int rank) {
    return [&where, rank] {
      const auto exchange = join(where, place_of(rank, 3));
      static_cast<void>(exchange->exchange("settings", "", kLong, base::now()));
      if (rank == 0) return std::string("gone");
      const std::string said =
          sentence_of([&] { static_cast<void>(exchange->exchange("addresses", "", kLong, base::now())); });
      EXPECT_EQ(sentence_of([&] { static_cast<void>(exchange->exchange("addresses", "", kLong, base::now())); }), said);
      return said.substr(0, said.find(" (its connection"));
    };
  };
  const std::string sentence = "rank 0 ended, or left the start, before the step \"addresses\" was over";
  EXPECT_EQ(run({two_steps(0), two_steps(1), two_steps(2)}), (Words{"gone", sentence, sentence}));
}

/// A rank that is late in a step is missed by all, and by its name, although their deadlines are not its own.
TEST(WrongStart, ARankThatIsLateForALaterStep) {
  const MeetingPlace where = store::tcp("127.0.0.1", 0);
  for (const int late : {0, 2}) {
    std::vector<std::unique_ptr<Exchange>> kept(3);  // its connection stays
    const auto two_steps = [&](int rank) {
      return [&, rank] {
        kept[static_cast<std::size_t>(rank)] = join(where, place_of(rank, 3));
        Exchange& exchange = *kept[static_cast<std::size_t>(rank)];
        static_cast<void>(exchange.exchange("settings", "", kLong, base::now()));
        if (rank == late) return std::string("late");
        return joined(exchange.exchange("addresses", "", kSome, base::now()));
      };
    };
    const Words said = run({two_steps(0), two_steps(1), two_steps(2)});
    const std::string sentence = "rank " + std::to_string(late) +
                                 " did not reach the step \"addresses\" of the start within 1 s "
                                 "(KOLO_CONNECT_TIMEOUT_S): a process has not joined yet, is stopped, or has ended";
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(said[static_cast<std::size_t>(rank)], rank == late ? "late" : sentence) << late << " " << rank;
    }
  }
}

// ---------------------------------------------------------------- strangers

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
  std::string recorded;  // a hello of a rank, to be repeated
  {
    const auto root = join(where, place_of(0, 2), "an earlier job's");
    const HelloBytes hello = make_hello("key", random_word(), {1, 3, 1, random_word()});
    recorded.assign(reinterpret_cast<const char*>(hello.data()), hello.size());
  }
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
        const HelloBytes hello = make_hello("", {}, {1, 3, 1, random_word()});
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
  EXPECT_EQ(most.size(), sizeof(GreetingBytes));  // a random word, and nothing of the job
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
    const GreetingBytes greeting = make_greeting(random_word());
    const Word welcome = random_word();
    static_cast<void>(::send(fd.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL));
    HelloBytes hello{};
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

// ---------------------------------------------------------------- pieces

TEST(Proof, IsHmacSha256) {
  // RFC 4231, test case 2.
  EXPECT_EQ(hex_of(prove("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_of(prove("", "")), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Handshake, EveryByteOfAHelloMatters) {
  const Word greeted = random_word();
  const HelloBytes right = make_hello("key", greeted, {3, 8, 1234, random_word()});
  std::string wrong;
  const auto hello = judge_hello("key", greeted, right, wrong);
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->rank, 3);
  EXPECT_EQ(hello->size, 8);
  EXPECT_EQ(hello->process, 1234);
  for (std::size_t i = 0; i < right.size(); ++i) {
    HelloBytes other = right;
    other[i] ^= 1;
    EXPECT_FALSE(judge_hello("key", greeted, other, wrong)) << i;
  }
  EXPECT_FALSE(judge_hello("key", random_word(), right, wrong));  // of another connection
  EXPECT_FALSE(judge_hello("Key", greeted, right, wrong));
}

TEST(Frames, NoLongerThanAgreed) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  Connection a(base::UniqueFd{ends[0]}, 10);
  Connection b(base::UniqueFd{ends[1]}, 10);
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
            "a rank sent what this release of Kolo cannot read; all ranks must run the same release");
}

}  // namespace
}  // namespace kolo::launch
