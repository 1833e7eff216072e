// SPDX-License-Identifier: Apache-2.0
//
// Starts that cannot work, and what each rank says of them.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "launch/sockets.hpp"
#include "launch/start.hpp"
#include "meetings.hpp"

namespace kolo::launch {
namespace {

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
            "rank 1 did not find rank 0 by tcp://127.0.0.1:PORT within 0.3 s (KOLO_CONNECT_TIMEOUT_S): 127.0.0.1:PORT: "
            "Connection refused (errno 111); rank 0 has not started yet, has ended, or cannot be reached from here");
  const Folder folder;
  EXPECT_EQ(sentence_of(rank_of(store::file("/nowhere/job"), place_of(0, 2))).substr(0, 38),
            "rank 0 cannot write its address to /no");
  EXPECT_EQ(run({rank_of(store::file(folder.path()), place_of(1, 2), kShort)})[0],
            "rank 1 did not find rank 0 by file://" + folder.path() +
                " within 0.3 s (KOLO_CONNECT_TIMEOUT_S): rank 0 has left no address in file://" + folder.path() +
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
  EXPECT_EQ(said[1],
            "rank 1 did not find rank 0 by tcp://127.0.0.1:PORT within 1 s (KOLO_CONNECT_TIMEOUT_S): what listens at "
            "127.0.0.1:PORT does not take this rank in: it is another job's rank 0, has another KOLO_JOB_KEY, or has "
            "too many "
            "connections at once; rank 0 has not started yet, has ended, or cannot be reached from here");
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
          " within 0.3 s (KOLO_CONNECT_TIMEOUT_S): " + where.describe() +
          " is stale, or of another job: what it holds was made with another KOLO_JOB_KEY; rank 0 has not started "
          "yet, has ended, or cannot be reached from here");
  std::ofstream(folder.path() + "/job") << "somebody's notes";
  EXPECT_EQ(
      run({rank_of(where, place_of(1, 2), kShort)})[0],
      "rank 1 did not find rank 0 by " + where.describe() +
          " within 0.3 s (KOLO_CONNECT_TIMEOUT_S): " + where.describe() +
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

TEST(WrongStart, Rank0Twice) {
  const Folder folder;
  const MeetingPlace tcp = store::tcp("127.0.0.1", 0);
  const std::vector<MeetingPlace> places = {tcp, store::file(folder.path() + "/job"),
                                            place_of_ports("127.0.0.1", own_ports("a job of torchrun's")),
                                            std::make_shared<MapStore>()};
  const std::string sentence =
      "rank 0 came twice: process P, which listens, and process P at ADDRESS; give every process a rank of its own "
      "(KOLO_RANK), and every job a place of its own";
  for (const MeetingPlace& where : places) {
    const auto first = join(where, place_of(0, 2));
    const auto run_first = [&] { return joined(first->exchange("settings", "", kLong, base::now())); };
    Words said = run({run_first, rank_of(where, place_of(0, 2))});
    for (std::string& one : said) one = std::regex_replace(one, std::regex("P at [^ ]+;"), "P at ADDRESS;");
    EXPECT_EQ(said, Words(2, sentence)) << where.describe();
  }
}

/// Two jobs that know different keys, at one place in a file system: the second takes it over, and the first says so.
TEST(WrongStart, TwoJobsInOneDirectory) {
  const Folder folder;
  const MeetingPlace where = store::file(folder.path());
  const auto first = join(where, place_of(0, 2), "one key");
  expect_meeting(where, 2, "another key");
  EXPECT_EQ(sentence_of([&] { static_cast<void>(first->exchange("settings", "", kShort, base::now())); }),
            "rank 1 did not reach the step \"settings\" of the start within 0.3 s (KOLO_CONNECT_TIMEOUT_S): a process "
            "has not joined yet, is stopped, or has ended; another process has written to " +
                where.describe() +
                " since: two processes have rank 0, or two jobs meet there; give every job a place of its own");
}

TEST(WrongStart, AStaleFileOfAJobWithTheSameKey) {
  const Folder folder;
  const MeetingPlace where = store::file(folder.path() + "/job");
  { const auto earlier = join(where, place_of(0, 2), "key"); }
  const std::string said = run({rank_of(where, place_of(1, 2), kSome, "key")})[0];
  EXPECT_TRUE(std::regex_match(
      said,
      std::regex("rank 1 did not find rank 0 by file://[^ ]+ within 1 s \\(KOLO_CONNECT_TIMEOUT_S\\): [^ ]+: "
                 "Connection refused \\(errno 111\\) \\(what file://[^ ]+ holds may be an earlier job's\\); rank 0 "
                 "has not started yet, has ended, or cannot be reached from here")))
      << said;
}

TEST(WrongStart, Rank0IsNotWhereTheOthersLook) {
  const std::uint16_t port = own_ports("a job that is elsewhere").front();
  const MeetingPlace where = store::tcp("198.51.100.1", port);  // of RFC 5737: nobody's
  EXPECT_EQ(run({rank_of(where, place_of(0, 2), kShort)})[0],
            "rank 1 did not reach the step \"settings\" of the start within 0.3 s (KOLO_CONNECT_TIMEOUT_S): a process "
            "has not joined yet, is stopped, or has ended; 198.51.100.1 is no address of this machine: rank 0 must run "
            "there, or be reached through it");
}

TEST(WrongStart, AFileOfAnotherUser) {
  const Folder folder;
  const std::string path = folder.path() + "/job";
  std::ofstream(path) << "kolo-1";
  const bool is_root = ::geteuid() == 0;  // else nobody can give files away, and it is this user's
  if (is_root) {
    ASSERT_EQ(::chown(path.c_str(), 54321, 54321), 0);
  }
  const auto said = [&](int rank, const std::string& secret) {
    return steady(
        sentence_of([&] { static_cast<void>(rank_of(store::file(path), place_of(rank, 2), kShort, secret)()); }));
  };
  const std::string sentence =
      path + " belongs to another user (number 54321), and without KOLO_JOB_KEY nothing else proves who wrote it: take "
             "a file of your own, or give all ranks the same KOLO_JOB_KEY";
  const std::string not_kolo = "rank 1 did not find rank 0 by file://" + path +
                               " within 0.3 s (KOLO_CONNECT_TIMEOUT_S): file://" + path +
                               " holds something that is not of Kolo, or of another release; rank 0 has not started "
                               "yet, has ended, or cannot be "
                               "reached from here";
  EXPECT_EQ(said(1, ""), is_root ? sentence : not_kolo);
  if (is_root) {
    EXPECT_EQ(said(0, ""), sentence);
  }
  EXPECT_EQ(said(1, "a key"), not_kolo);
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(said(1, ""), "cannot read where rank 0 is from " + path +
                             ": is a FIFO, no regular file: give the job a path at which a file can be written");
  std::filesystem::remove(path);
  std::filesystem::create_symlink("elsewhere", path);
  EXPECT_EQ(said(0, ""), "rank 0 cannot write its address to " + path + ": is a symbolic link, no regular file");
}

/// A program's own that does not keep its word.
class BadStore final : public Store {
 public:
  enum class Way : std::uint8_t { throws_at_set, throws_at_get, forgets, lies, is_late };
  explicit BadStore(Way way) : way_(way) {}
  void set(const std::string& /*key*/, const std::string& /*value*/) override {
    if (way_ == Way::throws_at_set) throw std::runtime_error("the service is down");
  }
  std::optional<std::string> get(const std::string& /*key*/, std::chrono::nanoseconds timeout) override {
    if (way_ == Way::throws_at_get) throw std::runtime_error("the service is down");
    if (way_ == Way::lies) return "42";
    if (way_ == Way::is_late && timeout > std::chrono::nanoseconds::zero()) {
      std::vector<pollfd> nothing;
      const base::Time end = base::now() + timeout + std::chrono::milliseconds(2100);
      while (base::now() < end) wait_until(nothing, end);
    }
    return std::nullopt;
  }

 private:
  const Way way_;
};

TEST(WrongStart, AStoreOfTheProgramsThatDoesNotKeepItsWord) {
  using Way = BadStore::Way;
  const auto said = [](Way way, int rank) {
    return steady(
        sentence_of([&] { static_cast<void>(rank_of(std::make_shared<BadStore>(way), place_of(rank, 2), kShort)()); }));
  };
  const std::string begin =
      "rank 1 did not find rank 0 by a store of the program's within 0.3 s (KOLO_CONNECT_TIMEOUT_S): ";
  const std::string end = "; rank 0 has not started yet, has ended, or cannot be reached from here";
  const std::string missing = "rank 1 did not reach the step \"settings\" of the start within 0.3 s "
                              "(KOLO_CONNECT_TIMEOUT_S): a process has not "
                              "joined yet, is stopped, or has ended";
  EXPECT_EQ(said(Way::throws_at_set, 0), "set of a store of the program's threw: the service is down");
  EXPECT_EQ(said(Way::throws_at_get, 1), "get of a store of the program's threw: the service is down");
  EXPECT_EQ(said(Way::forgets, 0), missing + "; a store of the program's does not hold what rank 0 has written there");
  EXPECT_EQ(said(Way::forgets, 1), begin + "rank 0 has left no address in a store of the program's" + end);
  EXPECT_EQ(said(Way::lies, 0), missing + "; another process has written to a store of the program's since: two "
                                          "processes have rank 0, or two jobs meet there; give every job a place of "
                                          "its own");
  EXPECT_EQ(said(Way::lies, 1),
            begin + "a store of the program's holds something that is not of Kolo, or of another release" + end);
  EXPECT_EQ(said(Way::is_late, 1),
            begin + "get of a store of the program's came back later than it was asked to, by 2 s" + end);
}

}  // namespace
}  // namespace kolo::launch
