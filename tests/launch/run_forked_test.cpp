// SPDX-License-Identifier: Apache-2.0
//
// Worlds of real processes without MPI: by run_forked, and by every kind of meeting place.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <locale>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "launch/processes.hpp"

namespace {

using kolo::ErrorCode;

std::string sentence_of(ErrorCode code, const std::function<void()>& action) {
  try {
    action();
  } catch (const kolo::Error& error) {
    EXPECT_EQ(error.code(), code) << error.status().message();
    return error.status().message();
  }
  return "no error";
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// Sums that are exact, of several sizes, by every route inside a node; the results compared on every rank.
void check_sums() {
  const int n = kolo::size();
  for (const std::size_t elements : {std::size_t{1}, std::size_t{1000}, std::size_t{300001}}) {
    std::vector<float> x(elements, static_cast<float>(kolo::rank() + 1));
    kolo::allreduce("t" + std::to_string(elements), kolo::view(x));
    std::vector<float> y(elements, static_cast<float>(kolo::rank() + 1));
    kolo::allreduce(kolo::view(y));
    const auto sum = static_cast<float>(n * (n + 1) / 2);
    for (std::size_t i = 0; i < elements; ++i) require(x[i] == sum && y[i] == sum, "a wrong sum");
  }
}

/// A stream of the program's whose last write ends the process.
class Breaking final : public std::streambuf {
 protected:
  int sync() override { std::abort(); }
};
void break_the_last_flush() { std::cout.rdbuf(new Breaking); }  // the process ends with it

TEST(RunForked, SumsOfEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    kolo::run_forked(ranks, [ranks] {
      require(kolo::size() == ranks && kolo::local_size() == ranks, "another size");
      check_sums();
    });
  }
}

/// "1.234", for streams.
class Grouped final : public std::numpunct<char> {
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(RunForked, RanksFindEachOtherInALocaleThatGroupsDigits) {
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouped));
  kolo::run_forked(2, [] {
    std::vector<int> all(std::size_t{2} << 20);  // long enough to be read in place
    const std::vector<int> mine(all.size() / 2, kolo::rank() + 1);
    kolo::allgather_into(kolo::const_view(mine), kolo::view(all));
    for (std::size_t i = 0; i < all.size(); ++i) require(all[i] == (i < mine.size() ? 1 : 2), "a wrong element");
  });
  std::locale::global(before);
}

/// In a process of its own, on a network of its own, whose loopback interface is down.
void where_loopback_is_down(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ADD_FAILURE() << "unshare";
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(RunForked, SaysAtOnceThatTheLoopbackInterfaceIsDown) {
  where_loopback_is_down([] {
    const std::string sentence = sentence_of(ErrorCode::transport, [] { kolo::run_forked(2, [] {}); });
    EXPECT_NE(
        sentence.find(": the loopback interface is down, over which the processes of one machine reach each other: "
                      "bring it up (ip link set lo up)"),
        std::string::npos)
        << sentence;
  });
}

TEST(FileStore, SaysAtOnceThatTheLoopbackInterfaceIsDown) {
  where_loopback_is_down([] {
    const std::string store = "file://" + (std::filesystem::path(::testing::TempDir()) / "no_loopback").string();
    ::setenv("KOLO_STORE", store.c_str(), 1);
    ::setenv("KOLO_RANK", "0", 1);
    ::setenv("KOLO_SIZE", "2", 1);
    const std::string sentence = sentence_of(ErrorCode::transport, [] { const kolo::Session session; });
    EXPECT_NE(sentence.find("this machine has no network address; the loopback interface is down"), std::string::npos)
        << sentence;
  });
}

TEST(RunForked, RanksAreProcesses) {
  const pid_t parent = ::getpid();
  kolo::run_forked(3, [parent] {
    const std::vector<int> all = kolo::allgather_object(static_cast<int>(::getpid()));
    for (const int one : all) require(one != parent, "a rank in the parent");
    require(all[0] != all[1] && all[1] != all[2], "two ranks in one process");
    const kolo::Session session;  // a guest
    require(kolo::describe().find("tcp://127.0.0.1:") != std::string::npos &&
                kolo::describe().find(", because run_forked has made this process") != std::string::npos,
            kolo::describe());
  });
}

/// From then on no rank can read or write another one's memory, which all have found that they can.
void drop_privileges() {
  constexpr uid_t kNobody = 65534;
  require(::geteuid() != 0 || ::setuid(kNobody) == 0, "setuid");
  require(::prctl(PR_SET_DUMPABLE, 0) == 0, "prctl");
}

TEST(RunForked, MessagesArriveWhenRanksHaveDroppedTheirPrivileges) {
  kolo::run_forked(2, [] {
    const int other = 1 - kolo::rank();
    for (int round = 0; round < 3; ++round) {
      for (const std::size_t elements : {std::size_t{10}, std::size_t{30000}, std::size_t{3000000}}) {
        const std::vector<int> mine(elements, kolo::rank() + 10 * round + 1);
        std::vector<int> theirs(elements, -1);
        kolo::sendrecv(kolo::const_view(mine), other, kolo::view(theirs), other);
        require(theirs == std::vector<int>(elements, other + 10 * round + 1), "a message to and fro");
        if (kolo::rank() == 0) {
          kolo::send(kolo::const_view(mine), 1);
        } else {
          kolo::recv(kolo::view(theirs), 0);
          require(theirs == std::vector<int>(elements, 10 * round + 1), "a message");
        }
      }
      check_sums();
      if (round == 0) drop_privileges();
    }
  });
}

TEST(RunForked, TheLongestTimeoutIsNeverOver) {
  kolo::run_forked(2, [] {
    constexpr std::size_t kElements = std::size_t{1} << 20;
    constexpr auto kLongest = std::chrono::nanoseconds::max();
    std::vector<float> x(kElements, 1 + static_cast<float>(kolo::rank()));
    std::vector<float> both(2 * kElements);
    const kolo::TensorView view = kolo::view(x);
    for (int i = 0; i < 3; ++i) {
      kolo::broadcast(view, 0, kolo::BroadcastOptions{}.with_timeout(kLongest));
      require(x[kElements - 1] == 1, "a wrong result");
      kolo::reduce(view, 0, kolo::ReduceOptions{}.with_timeout(kLongest));
      require(x[kElements - 1] == (kolo::rank() == 0 ? 2 : 1), "a wrong result");
      x.assign(kElements, 1);
      kolo::allreduce(view, kolo::AllreduceOptions{kolo::ReduceOp::average}.with_timeout(kLongest));
      require(x[kElements - 1] == 1, "a wrong result");
      kolo::allgather_into(view, kolo::view(both), kolo::AllgatherOptions{}.with_timeout(kLongest));
      require(both[2 * kElements - 1] == 1, "a wrong result");
      kolo::barrier(kolo::BarrierOptions{}.with_timeout(kLongest));
      if (kolo::rank() == 0) kolo::send(view, 1, 0, kolo::SendOptions{}.with_timeout(kLongest));
      if (kolo::rank() == 1) kolo::recv(view, 0, 0, kolo::RecvOptions{}.with_timeout(kLongest));
    }
  });
}

TEST(RunForked, AnExceptionHasItsRanksName) {
  EXPECT_EQ(sentence_of(ErrorCode::user_exception,
                        [] {
                          kolo::run_forked(3, [] {
                            if (kolo::rank() == 1) throw std::runtime_error("no more data");
                            float x = 1;
                            kolo::allreduce("x", kolo::view(&x, {1}));
                          });
                        }),
            "rank 1: no more data");
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument,
                        [] {
                          kolo::run_forked(2, [] {
                            if (kolo::rank() == 1) throw kolo::Error(ErrorCode::invalid_argument, "wrong so");
                            kolo::barrier();
                          });
                        }),
            "rank 1: wrong so");
}

TEST(RunForked, ADeathHasItsRanksName) {
  EXPECT_EQ(sentence_of(ErrorCode::rank_lost,
                        [] {
                          kolo::run_forked(3, [] {
                            if (kolo::rank() == 2) ::raise(SIGKILL);
                            kolo::barrier();
                          });
                        }),
            "rank 2 was killed by signal 9 (Killed)");
  EXPECT_EQ(sentence_of(ErrorCode::rank_lost,
                        [] {
                          kolo::run_forked(3, [] {
                            if (kolo::rank() == 0) ::_exit(3);
                            kolo::barrier();
                          });
                        }),
            "rank 0 ended with exit status 3");
}

TEST(RunForked, AWrongSettingIsOneSentence) {
  EXPECT_EQ(sentence_of(ErrorCode::invalid_setting,
                        [] {
                          kolo::run_forked(
                              2, [] {}, kolo::Options{}.with_setting("KOLO_SLOTS", "many"));
                        }),
            "rank 0: KOLO_SLOTS is \"many\" (option); expected an integer in the range 0 .. 64");
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [] { kolo::run_forked(0, [] {}); }),
            "run_forked needs at least one rank, not 0");
}

TEST(RunForked, BetweenNodesByUcxWhereItIsInTheBuild) {
  const auto by = [](const char* transport) {
    return sentence_of(ErrorCode::unsupported, [&] {
      kolo::run_forked(
          4,
          [] {
            require(kolo::cross_size() == 2, "another number of nodes");
            check_sums();
          },
          kolo::Options{}.with_setting("KOLO_RANKS_PER_NODE", "2").with_setting("KOLO_TRANSPORT", transport));
    });
  };
  const std::string no_mpi =
      "this job has 2 nodes, and no MPI has started it that could carry data between them: start it by mpirun, or let "
      "UCX carry the data (KOLO_TRANSPORT=ucx, with UCX installed on every host; Debian: libucx0)";
  const bool has_ucx = !kolo::built_with().ucx.empty();
  EXPECT_EQ(by("auto"), has_ucx ? "no error"
                                : "rank 0: " + no_mpi +
                                      "; UCX cannot be used here (rank 0: this build of Kolo has no UCX part: "
                                      "build it where UCX's headers are (Debian: libucx-dev))");
  EXPECT_EQ(by("mpi"), "rank 0: " + no_mpi);
}

/// What a rank writes by C++'s streams comes out though its process ends without their destructors.
TEST(RunForked, StreamsOfTheirOwnAreFlushed) {
  ::testing::internal::CaptureStdout();
  kolo::run_forked(2, [] {
    std::ios::sync_with_stdio(false);
    std::cout << "rank " << kolo::rank() << "\n";
  });
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(said == "rank 0\nrank 1\n" || said == "rank 1\nrank 0\n") << said;
}

/// A rank that has done its work, and whose process then fails, has failed.
TEST(RunForked, AFailureAtTheVeryEndIsTheRanksOwn) {
  EXPECT_EQ(sentence_of(ErrorCode::rank_lost,
                        [] {
                          kolo::run_forked(2, [] {
                            if (kolo::rank() == 1) break_the_last_flush();
                          });
                        }),
            "rank 1 was killed by signal 6 (Aborted)");
}

TEST(RunForked, NotInAProcessThatForksWouldBreak) {
  const kolo::launch::Outcome outcome = kolo::launch::run_processes(1, [](int /*rank*/, int /*report*/) {
    const auto said = [](const kolo::Options& options) {
      return sentence_of(ErrorCode::invalid_argument, [&] {
        kolo::run_forked(
            2, [] {}, options);
      });
    };
    EXPECT_EQ(said(kolo::Options{}.with_store(kolo::store::file("/tmp/none"), 0, 2)),
              "run_forked: its ranks meet by a place of their own; leave Options::with_store out");
    {
      const kolo::Context context = kolo::Context::alone();  // bound to no thread
      EXPECT_EQ(said({}), "run_forked: this process has a context, whose threads would not be there in the processes "
                          "that it forks: shut it down first");
    }
    EXPECT_EQ(said({}), "no error");
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(outcome.endings.at(0).status, 0);
}

TEST(RunForked, NotInsideARank) {
  kolo::run_forked(1, [] {  // in a process of its own: where a rank has been, its forks are none
    require(sentence_of(ErrorCode::invalid_argument, [] { kolo::run_forked(2, [] {}); }) ==
                "run_forked: this thread has a context already, and its process is a rank: the processes that it forks "
                "cannot be others",
            "another sentence");
  });
}

/// Each process by its own `init`, twice.
void expect_sessions(const std::function<kolo::MeetingPlace()>& where) {
  const kolo::MeetingPlace place = where();
  const kolo::launch::Outcome outcome = kolo::launch::run_processes(4, [&](int rank, int /*report*/) {
    try {
      for (int time = 0; time < 2; ++time) {
        const kolo::Session session(kolo::Options{}.with_store(place, rank, 4));
        require(kolo::rank() == rank && kolo::size() == 4, "another place");
        check_sums();
      }
      return 0;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
      return 1;
    }
  });
  ASSERT_EQ(outcome.endings.size(), 4U);
  for (const kolo::launch::ProcessEnd& ending : outcome.endings) EXPECT_EQ(ending.status, 0) << ending.rank;
}

TEST(Sessions, MeetByTcp) {
  expect_sessions([] { return kolo::store::tcp("127.0.0.1", 0); });
}

TEST(Sessions, MeetByAFile) {
  std::string folder = (std::filesystem::temp_directory_path() / "kolo-sessions-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  expect_sessions([&] { return kolo::store::file(folder); });
  std::filesystem::remove_all(folder);
}

/// A store of the program's, over a folder: what a person would write in ten lines.
class FolderStore final : public kolo::Store {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}
  void set(const std::string& /*key: one*/, const std::string& value) override {
    std::ofstream(folder_ + "/new") << value;
    std::filesystem::rename(folder_ + "/new", folder_ + "/it");
  }
  std::optional<std::string> get(const std::string& /*key*/, std::chrono::nanoseconds /*timeout*/) override {
    std::ifstream file(folder_ + "/it");
    std::string text;
    return std::getline(file, text) ? std::optional(text) : std::nullopt;
  }

 private:
  std::string folder_;
};

TEST(Sessions, MeetByAStoreOfThePrograms) {
  std::string folder = (std::filesystem::temp_directory_path() / "kolo-sessions-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  expect_sessions([&] { return kolo::MeetingPlace(std::make_shared<FolderStore>(folder)); });
  std::filesystem::remove_all(folder);
}

}  // namespace
