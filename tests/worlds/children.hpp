// SPDX-License-Identifier: Apache-2.0
//
// Parts of tests that run in a process of their own, forked from the test's.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace kolo::testing {

/// Whether this process is such a child.
inline bool is_child = false;

#ifdef __SANITIZE_ADDRESS__
/// Whether another thread of this process runs.
inline bool another_thread_runs() {
  const std::string own = std::to_string(::gettid());
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string line;
    std::getline(std::ifstream(thread.path() / "stat"), line);
    const std::string::size_type after_name = line.rfind(") ");
    if (thread.path().filename() != own && after_name != std::string::npos && line[after_name + 2] == 'R') return true;
  }
  return false;
}

/// GCC's libasan does not take its allocator's locks while a process forks. One that another thread holds stays locked
/// in the child, which then hangs as it allocates. A thread that waits in the kernel holds none.
inline void wait_for_other_threads() {
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (another_thread_runs() && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
}
#else
inline void wait_for_other_threads() {}
#endif

/// The child's exit status: 0 unless an expectation fails in it; -1 when a signal ends it. `exit` destroys what is
/// static.
inline int status_of_child(const std::function<void()>& body) {
  wait_for_other_threads();
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
