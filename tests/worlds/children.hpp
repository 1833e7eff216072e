// SPDX-License-Identifier: Apache-2.0
//
// Parts of tests that run in a process of their own, forked from the test's.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

namespace kolo::testing {

/// Whether this process is such a child.
inline bool is_child = false;

/// The child's exit status: 0 unless an expectation fails in it; -1 when a signal ends it. `exit` destroys what is
/// static.
inline int status_of_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    is_child = true;
    ::alarm(300);  // one that hangs
    body();
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace kolo::testing
