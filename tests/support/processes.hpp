// SPDX-License-Identifier: Apache-2.0
//
// Worlds of real processes, made by fork, for what only processes can show. The test's own process is their hub: it
// passes on what they gather, and judges how they end.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <kolo/error.hpp>

#include "base/unique_fd.hpp"
#include "bootstrap/bootstrap.hpp"

namespace kolo::testing {

inline bool is_readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

/// `exchange` through the hub: each rank sends a packet, and gets everybody's in return.
class HubBootstrap final : public bootstrap::Bootstrap {
 public:
  HubBootstrap(int rank, int size, base::UniqueFd hub) : rank_(rank), size_(size), hub_(std::move(hub)) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::vector<std::string> exchange(std::string_view /*label*/, const std::string& mine, base::Duration,
                                    base::Time) override {
    // A packet of length zero could not be told from an end of file.
    const std::string packet = '.' + mine;
    if (::send(hub_.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0)
      throw Error(ErrorCode::transport, "the hub is gone");
    std::vector<std::string> all;
    for (int r = 0; r < size_; ++r) {
      std::array<char, 8192> buffer;
      const ssize_t bytes = ::recv(hub_.get(), buffer.data(), buffer.size(), 0);
      if (bytes <= 0) throw Error(ErrorCode::transport, "the hub is gone");
      all.emplace_back(buffer.data() + 1, static_cast<std::size_t>(bytes) - 1);
    }
    return all;
  }
  std::shared_ptr<transport::NodeLink> join_node(const core::Topology&, std::size_t, const std::string&,
                                                 base::Duration) override {
    std::abort();  // the tests call the function under test
  }
  std::shared_ptr<transport::InterNode> inter_node(const core::Topology&, base::Duration) override { std::abort(); }
  std::string describe() const override { return "processes of a test"; }

 private:
  int rank_;
  int size_;
  base::UniqueFd hub_;
};

/// Passes on gatherings until a rank's connection ends; then all end.
inline void be_the_hub(const std::vector<base::UniqueFd>& ranks) {
  while (true) {
    std::vector<std::string> all;
    for (const base::UniqueFd& rank : ranks) {
      std::array<char, 8192> buffer;
      const ssize_t bytes = ::recv(rank.get(), buffer.data(), buffer.size(), 0);
      if (bytes <= 0) return;
      all.emplace_back(buffer.data(), static_cast<std::size_t>(bytes));
    }
    for (const base::UniqueFd& rank : ranks)
      for (const std::string& each : all)
        if (::send(rank.get(), each.data(), each.size(), MSG_NOSIGNAL) < 0) return;
  }
}

/// A child's whole life. Failed expectations and exceptions become its exit status.
[[noreturn]] inline void be_a_rank(HubBootstrap bootstrap, const std::function<void(bootstrap::Bootstrap&)>& body) {
  ::alarm(120);
  try {
    body(bootstrap);
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", bootstrap.rank(), error.what());
    std::fflush(stdout);
    ::_exit(2);
  }
  std::fflush(stdout);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

/// Runs `body` in `size` processes, one a rank; returns their exit statuses as wait() tells them.
inline std::vector<int> run_processes(int size, const std::function<void(bootstrap::Bootstrap&)>& body) {
  std::fflush(stdout);
  std::vector<base::UniqueFd> hub_ends;
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      hub_ends.clear();
      be_a_rank(HubBootstrap(rank, size, base::UniqueFd(ends[1])), body);
    }
    ::close(ends[1]);
    hub_ends.emplace_back(ends[0]);
    children.push_back(child);
  }
  be_the_hub(hub_ends);
  hub_ends.clear();
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    statuses.push_back(status);
  }
  return statuses;
}

}  // namespace kolo::testing
