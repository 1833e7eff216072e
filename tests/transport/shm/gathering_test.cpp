// SPDX-License-Identifier: Apache-2.0
//
// How a node's ranks reach their leader: beside strangers, with too few descriptors, and when one of them does not
// come.
#include "transport/shm/gathering.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <stdexcept>
#include <thread>

#include "base/poller.hpp"
#include "bootstrap/handover.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/support/meeting.hpp"
#include "tests/support/processes.hpp"

namespace kolo::shm::test {
namespace {

const std::string kKey = "a key";

core::Topology topology_of(int rank, int size) {
  return core::make_topology(rank, std::vector<int>(static_cast<std::size_t>(size), 0), 0);
}

Gathering gathering_of(const core::Topology& topology, double seconds = 60) {
  return {topology, kKey, base::from_seconds(seconds), [] {}};
}

/// Rank 1 of two, on a thread.
class Member1 {
 public:
  explicit Member1(const LocalListener& listener) : thread_([this, name = listener.name()] { join(name); }) {}
  ~Member1() { thread_.join(); }

 private:
  void join(const std::string& name) {
    const Gathering gathering = gathering_of(topology_);
    LocalSocket socket;
    connect_to_leader(socket, name, bell_.fd(), gathering);
    EXPECT_EQ(receive_descriptors(socket, 1, gathering).size(), 1u);
  }

  const core::Topology topology_ = topology_of(1, 2);
  const base::EventFd bell_;
  std::thread thread_;
};

/// Connects and says nothing.
std::deque<LocalSocket> silent_strangers(const LocalListener& listener, int count) {
  std::deque<LocalSocket> strangers(static_cast<std::size_t>(count));
  for (LocalSocket& stranger : strangers) stranger.connect(listener.name(), base::now() + base::from_seconds(60));
  return strangers;
}

void expect_member_1(LocalListener& listener) {
  const core::Topology topology = topology_of(0, 2);
  const Gathering gathering = gathering_of(topology);
  std::vector<Member> members = accept_members(listener, gathering);
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].local_rank, 1);
  const base::EventFd bell;
  send_descriptors(members, {bell.fd()}, gathering);
}

TEST(Gathering, ASilentStrangerKeepsNobodyWaiting) {
  LocalListener listener(8);
  const std::deque<LocalSocket> strangers = silent_strangers(listener, 3);
  const Member1 member(listener);
  expect_member_1(listener);
}

TEST(Gathering, AStrangerWhoTalksIsClosed) {
  LocalListener listener(8);
  std::deque<LocalSocket> strangers = silent_strangers(listener, 3);
  strangers[0].send("GET / HTTP/1.1", {}, base::now() + base::from_seconds(60));
  strangers[1].send("kolo node 1 another key", {STDIN_FILENO}, base::now() + base::from_seconds(60));
  const Member1 member(listener);
  expect_member_1(listener);
  for (const int talker : {0, 1})
    EXPECT_THROW(strangers[static_cast<std::size_t>(talker)].receive(base::now() + base::from_seconds(60)), PeerError);
}

TEST(Gathering, AFullBacklogIsWaitedFor) {
  LocalListener listener(1);
  const std::deque<LocalSocket> strangers = silent_strangers(listener, 2);  // as many as it has room for
  const Member1 member(listener);
  expect_member_1(listener);
}

TEST(Gathering, StrangersDoNotUseUpTheDescriptors) {
  LocalListener listener(20);
  const std::deque<LocalSocket> strangers = silent_strangers(listener, 10);
  const base::EventFd bell;
  const core::Topology topologies[2] = {topology_of(0, 2), topology_of(1, 2)};
  LocalSocket socket;
  connect_to_leader(socket, listener.name(), bell.fd(), gathering_of(topologies[1]));
  const kolo::testing::FewDescriptors few(4);
  EXPECT_EQ(accept_members(listener, gathering_of(topologies[0])).size(), 1u);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    return error.status().message();
  }
  return "no error";
}

TEST(Gathering, WhoDoesNotComeIsNamed) {
  LocalListener listener(4);
  const core::Topology topology =
      core::make_topology(4, {0, 0, 0, 7, 7, 7, 7}, 0);  // a follower asks on the leader's behalf
  const core::Topology leader = core::make_topology(3, {0, 0, 0, 7, 7, 7, 7}, 0);
  const base::EventFd bell;
  LocalSocket socket;
  connect_to_leader(socket, listener.name(), bell.fd(), gathering_of(topology));
  EXPECT_EQ(error_of([&] { accept_members(listener, gathering_of(leader, 0.05)); }),
            "ranks 5 and 6 did not join the node's shared memory within 0.05 s");
}

TEST(Gathering, AFailureOfTheWorldEndsTheWait) {
  LocalListener listener(4);
  const core::Topology topology = topology_of(0, 2);
  const Gathering gathering(topology, kKey, base::from_seconds(60),
                            [] { throw std::runtime_error("the world has failed"); });
  EXPECT_THROW(accept_members(listener, gathering), std::runtime_error);

  const core::Topology member = topology_of(1, 2);
  int calls = 0;
  const Gathering of_member(member, kKey, base::from_seconds(60), [&calls] {
    if (++calls == 2) throw std::runtime_error("the world has failed");
  });
  const base::EventFd bell;
  LocalSocket socket;
  connect_to_leader(socket, listener.name(), bell.fd(), of_member);  // whom nobody hears
  EXPECT_THROW(receive_descriptors(socket, 1, of_member), std::runtime_error);
}

TEST(Gathering, RanksThatFailByThemselvesAreNamedBeforeThoseThatFailByAPeer) {
  const transport::Meeting meet = [](const std::string& mine) {
    return std::vector<std::string>{"?rank 2 closed its connection", "+", mine};
  };
  EXPECT_EQ(error_of([&] { together(meet, []() -> std::string { throw Error(ErrorCode::transport, "no memory"); }); }),
            "rank 2 cannot share memory with its node: no memory");
  EXPECT_EQ(error_of([&] { together(meet, [] { return std::string(); }); }),
            "sharing memory: rank 2 closed its connection");
}

TEST(Gathering, TooFewDescriptorsAreToldToAllBeforeAnybodyWaits) {
  for (const int poor : {0, 2}) {
    const std::vector<int> statuses = testing::run_processes(4, [&](bootstrap::Bootstrap& bootstrap) {
      const core::Topology topology = test_support::topology_on_one_machine(bootstrap);
      const kolo::testing::FewDescriptors few(bootstrap.rank() == poor ? 6 : 40);
      const std::string limit = test_support::meet(bootstrap, few.limit())[static_cast<std::size_t>(poor)];
      EXPECT_EQ(error_of([&] { bootstrap::join_node(bootstrap, topology, 4096, kKey); }),
                "rank " + std::to_string(poor) + " cannot share memory with its node: opening " +
                    (poor == 0 ? "10" : "6") + " more descriptors: Too many open files (errno 24); the limit is " +
                    limit + " file descriptors: raise it (ulimit -n)");
    });
    EXPECT_EQ(statuses, std::vector<int>(4, 0));
  }
}

/// An ordinary user may have as many descriptors on their way as one of his processes may have open.
TEST(Gathering, DescriptorsOnTheirWayStayWithinAUsersLimit) {
  constexpr int kRanks = 16;
  const std::vector<int> statuses = testing::run_processes(kRanks, [&](bootstrap::Bootstrap& bootstrap) {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0) {
      ASSERT_EQ(::setresuid(kNobody, kNobody, kNobody), 0);
    }
    const core::Topology topology = test_support::topology_on_one_machine(bootstrap);
    const kolo::testing::FewDescriptors few(6 * kRanks);  // all that the leader sends are 16 x 15
    const auto link = bootstrap::join_node(bootstrap, topology, 4096, kKey);
    const auto meet = [&](const std::string& mine) { return test_support::meet(bootstrap, mine); };
    const auto region = link->share(transport::Sharers::all(topology), 4096, meet, [] {});
    EXPECT_EQ(region->bytes(), 4096u);
  });
  EXPECT_EQ(statuses, std::vector<int>(kRanks, 0));
}

}  // namespace
}  // namespace kolo::shm::test
