// SPDX-License-Identifier: Apache-2.0
#include "api/forks.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <optional>

#include "base/unique_fd.hpp"

namespace kolo::api {
namespace {

/// Whether `body` says so in a child.
bool is_in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_open(int fd) { return ::write(fd, "12345678", 8) == 8; }

TEST(ClosedInChildren, ClosesSockets) {
  std::array<int, 2> pair{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
  const base::UniqueFd one(pair[0]);
  const base::UniqueFd other(pair[1]);
  std::optional<ClosedInChildren> closed(std::in_place, std::vector<int>{one.get()});
  EXPECT_TRUE(is_in_child([&] { return !is_open(one.get()) && is_open(other.get()); }));
  closed.reset();
  EXPECT_TRUE(is_in_child([&] { return is_open(one.get()); }));
}

/// All event descriptors, those of processes among them, have one file.
TEST(ClosedInChildren, LeavesTheProgramsDescriptorsOpen) {
  base::UniqueFd ours(::eventfd(0, EFD_CLOEXEC));
  const int number = ours.get();
  const ClosedInChildren closed({number});
  ours.reset();
  const base::UniqueFd programs(::eventfd(0, EFD_CLOEXEC));
  ASSERT_EQ(programs.get(), number);
  EXPECT_TRUE(is_in_child([&] { return is_open(number); }));
}

TEST(Forks, AContextCountsFromTheFirstStepOfItsStart) {
  EXPECT_FALSE(contexts_are_open());
  {
    const ContextInTheMaking making;
    EXPECT_TRUE(contexts_are_open());
    EXPECT_FALSE(contexts_are_inherited());
    EXPECT_TRUE(is_in_child([] { return contexts_are_inherited(); }));
  }
  EXPECT_FALSE(contexts_are_open());
  EXPECT_TRUE(is_in_child([] { return !contexts_are_inherited() && !contexts_are_open(); }));
}

TEST(Forks, AnOriginKnowsItsProcess) {
  const ContextInTheMaking making;
  const Origin origin;
  EXPECT_TRUE(origin.is_here());
  EXPECT_TRUE(is_in_child([&] { return !origin.is_here() && Origin().is_here(); }));
}

}  // namespace
}  // namespace kolo::api
