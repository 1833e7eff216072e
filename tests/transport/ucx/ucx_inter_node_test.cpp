// SPDX-License-Identifier: Apache-2.0
//
// What only UCX's transport does: sleeping, losses, and what it must leave alone. Each case is in processes of its own,
// which load UCX themselves.
#include "transport/ucx/ucx_inter_node.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/settings.hpp"
#include "tests/support/inter_node.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/ucx.hpp"

namespace kolo::ucx {
namespace {

using testing::run_processes;
using testing::ucx_between;
using testing::inter_node::finish;

constexpr std::chrono::seconds kPatience{60};

void meet(bootstrap::Bootstrap& bootstrap) { bootstrap.exchange("test", "", kPatience); }

/// What the transport has reported, in words.
class Losses {
 public:
  explicit Losses(UcxInterNode& transport) : transport_(transport) {
    transport.report_to({[this](int rank, const std::string& reason) { told_.emplace_back(rank, reason); }, {}});
  }
  [[nodiscard]] const std::vector<std::pair<int, std::string>>& told() const { return told_; }
  void wait() {
    while (told_.empty()) transport_.progress(base::now());
  }

 private:
  UcxInterNode& transport_;
  std::vector<std::pair<int, std::string>> told_;
};

/// Both ends have heard of each other.
void greet(UcxInterNode& transport, int peer) {
  std::byte* const sent = transport.staging(8);
  std::byte* const received = transport.staging(8);
  const auto in = transport.receive(peer, 1, received, 8);
  finish(transport, transport.send(peer, 1, sent, 8));
  finish(transport, in);
}

TEST(UcxLibrary, LeavesSignalsAlone) {
  const std::vector<int> statuses = run_processes(1, [](bootstrap::Bootstrap&) {
    const auto handler_of = [](int signal) {
      struct sigaction action = {};
      EXPECT_EQ(::sigaction(signal, nullptr, &action), 0);
      return action.sa_handler;
    };
    std::vector<void (*)(int)> before;
    const std::vector<int> signals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGUSR1, SIGALRM};
    for (const int signal : signals) before.push_back(handler_of(signal));
    const Worker worker(testing::ucx_library(), "");
    for (std::size_t i = 0; i < signals.size(); ++i) EXPECT_EQ(handler_of(signals[i]), before[i]) << signals[i];
    for (const std::string& name : base::environment_names())
      EXPECT_NE(name.rfind("UCX_", 0), 0u) << name << " is left in the program's environment";
  });
  EXPECT_EQ(statuses, std::vector<int>{0});
}

TEST(UcxLibrary, RefusesAProcessThatWasForkedAfterItWasLoaded) {
  const std::vector<int> statuses = run_processes(1, [](bootstrap::Bootstrap&) {
    const Library& library = testing::ucx_library();
    const pid_t child = ::fork();
    if (child == 0) {
      std::string told;
      try {
        const Worker worker(library, "");
      } catch (const Error& error) {
        told = error.status().message();
      }
      ::_exit(told == "UCX was loaded before this process was forked, and does not work in a fork: fork before the "
                      "first context is made"
                  ? 0
                  : 3);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
  EXPECT_EQ(statuses, std::vector<int>{0});
}

TEST(UcxInterNode, RingsWhoSleeps) {
  const std::vector<int> statuses = run_processes(2, [](bootstrap::Bootstrap& bootstrap) {
    const auto transport = ucx_between(bootstrap);
    greet(*transport, 1 - bootstrap.rank());
    std::byte* const memory = transport->staging(1000);
    if (bootstrap.rank() == 0) {
      meet(bootstrap);  // the other one sleeps, or is about to
      finish(*transport, transport->send(1, 2, memory, 1000));
    } else {
      const auto operation = transport->receive(0, 2, memory, 1000);
      // What UCX itself still says as it connects may ring, too.
      const auto sleeps = [&] { return transport->arm() && !testing::is_readable(transport->event_fd(), 0); };
      while (!sleeps()) transport->progress(base::now());
      meet(bootstrap);
      bool done = false;
      while (!done) {
        ASSERT_TRUE(testing::is_readable(transport->event_fd(), 20000)) << "nothing rings";
        done = testing::inter_node::look(*transport, operation);
        while (!done && !transport->arm()) done = testing::inter_node::look(*transport, operation);
      }
    }
    meet(bootstrap);
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

/// By shared memory and by TCP.
class UcxLosses : public ::testing::TestWithParam<const char*> {
 protected:
  static std::vector<int> run(const std::function<void(bootstrap::Bootstrap&)>& body) {
    return run_processes(2, [&](bootstrap::Bootstrap& bootstrap) {
      if (std::string(GetParam()) != "any") ::setenv("UCX_TLS", GetParam(), 1);
      body(bootstrap);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, UcxLosses, ::testing::Values("any", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(UcxLosses, AKilledPeerIsReportedWhileSomethingIsOpenWithIt) {
  const std::vector<int> statuses = run([](bootstrap::Bootstrap& bootstrap) {
    const auto transport = ucx_between(bootstrap);
    greet(*transport, 1 - bootstrap.rank());
    meet(bootstrap);
    if (bootstrap.rank() == 1) ::raise(SIGKILL);
    Losses losses(*transport);
    const auto operation = transport->receive(1, 2, transport->staging(100), 100);
    losses.wait();
    ASSERT_EQ(losses.told().size(), 1u);
    EXPECT_EQ(losses.told()[0].first, 1);
    EXPECT_EQ(losses.told()[0].second.find("the connection to it has failed (UCX: "), 0u) << losses.told()[0].second;
    EXPECT_FALSE(transport->test(operation));
    const auto late = transport->send(1, 2, transport->staging(100), 100);
    for (int pass = 0; pass < 100; ++pass) EXPECT_FALSE(testing::inter_node::look(*transport, late));
    EXPECT_EQ(losses.told().size(), 1u) << "once";
  });
  EXPECT_EQ(statuses[0], 0);
  EXPECT_TRUE(WIFSIGNALED(statuses[1]));
}

/// A rank that has left closes its connections while others may be on their way out.
TEST_P(UcxLosses, OneThatHasLeftIsNotReportedUntilSomethingIsOpenWithIt) {
  const std::vector<int> statuses = run([](bootstrap::Bootstrap& bootstrap) {
    auto transport = ucx_between(bootstrap);
    greet(*transport, 1 - bootstrap.rank());
    meet(bootstrap);
    if (bootstrap.rank() == 1) {
      transport.reset();
      return meet(bootstrap);
    }
    Losses losses(*transport);
    meet(bootstrap);  // the other end is gone
    for (int pass = 0; pass < 1000; ++pass) transport->progress(base::now());
    EXPECT_TRUE(losses.told().empty());
    transport->expect(true);
    losses.wait();
    EXPECT_EQ(losses.told()[0].first, 1);
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

/// A rendezvous would wait for the receive.
TEST(UcxInterNode, OverTcpAMessageOfASlotIsGoneBeforeItIsAskedFor) {
  const std::vector<int> statuses = run_processes(2, [](bootstrap::Bootstrap& bootstrap) {
    ::setenv("UCX_TLS", "tcp", 1);
    const auto transport = ucx_between(bootstrap);
    constexpr std::size_t kBytes = 128 << 10;
    std::byte* const memory = transport->staging(kBytes);
    std::byte* const word = transport->staging(8);
    if (bootstrap.rank() == 0) {
      for (std::size_t i = 0; i < kBytes; ++i) memory[i] = static_cast<std::byte>(i % 251);
      finish(*transport, transport->send(1, 2, memory, kBytes));
      finish(*transport, transport->send(1, 3, word, 8));
    } else {
      finish(*transport, transport->receive(0, 3, word, 8));
      finish(*transport, transport->receive(0, 2, memory, kBytes));
      for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(memory[i], static_cast<std::byte>(i % 251)) << i;
    }
    meet(bootstrap);
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

/// Such memory has a name for some milliseconds, and stays if the rank is killed in them.
TEST(UcxLibrary, MakesNoMemoryThatProcessesShareByName) {
  const std::vector<int> statuses = run_processes(1, [](bootstrap::Bootstrap&) {
    ::unsetenv("UCX_TLS");
    const Worker worker(testing::ucx_library(), "");
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      EXPECT_EQ(line.find("ucx_shm"), std::string::npos) << line;
      EXPECT_EQ(line.find("/SYSV"), std::string::npos) << line;
    }
  });
  EXPECT_EQ(statuses, (std::vector<int>{0}));
}

/// What is sent would be longer than what is received, as UCX has that itself, which UCX refuses.
TEST(UcxLibrary, LeavesSegmentsToTheUser) {
  const std::vector<int> statuses = run_processes(1, [](bootstrap::Bootstrap&) {
    ::setenv("UCX_TLS", "tcp", 1);
    ::setenv("UCX_LOG_LEVEL", "fatal", 1);
    ::setenv("UCX_TCP_TX_SEG_SIZE", "200k", 1);
    try {
      const Worker worker(testing::ucx_library(), "");
      ADD_FAILURE() << "a worker with other segments";
    } catch (const Error& error) {
      EXPECT_EQ(error.status().message(), "ucp_worker_create: Invalid parameter");
    }
  });
  EXPECT_EQ(statuses, std::vector<int>{0});
}

TEST(UcxInterNode, AMessageThatIsTooShortIsAnError) {
  const std::vector<int> statuses = run_processes(2, [](bootstrap::Bootstrap& bootstrap) {
    const auto transport = ucx_between(bootstrap);
    EXPECT_EQ(testing::inter_node::send_too_little(*transport, bootstrap.rank()), testing::inter_node::Complaints{});
    meet(bootstrap);
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

/// While the connection is being made: UCX must not be made to close it. Nothing waits for the other side.
TEST(UcxInterNode, EndsWithOperationsOpen) {
  const std::vector<int> statuses = run_processes(2, [](bootstrap::Bootstrap& bootstrap) {
    auto transport = ucx_between(bootstrap);
    const int peer = 1 - bootstrap.rank();
    constexpr std::size_t kBytes = std::size_t{4} << 20;
    const auto in = transport->receive(peer, 9, transport->staging(100), 100);
    const auto out = transport->send(peer, 10, transport->staging(kBytes), kBytes);
    EXPECT_FALSE(testing::inter_node::look(*transport, in));
    EXPECT_FALSE(testing::inter_node::look(*transport, out));
    meet(bootstrap);  // both have begun to connect
    transport->abandon();
    transport.reset();
    meet(bootstrap);
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

TEST(UcxInterNode, RefusesADeviceThatIsNotThere) {
  const std::vector<int> statuses = run_processes(1, [](bootstrap::Bootstrap&) {
    ::setenv("UCX_TLS", "tcp", 1);
    ::setenv("UCX_LOG_LEVEL", "fatal", 1);
    try {
      const Worker worker(testing::ucx_library(), "nosuch0");
      ADD_FAILURE() << "a worker without a device";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::transport);
      EXPECT_EQ(error.status().message(), "ucp_init: No such device");
    }
  });
  EXPECT_EQ(statuses, std::vector<int>{0});
}

}  // namespace
}  // namespace kolo::ucx
