// SPDX-License-Identifier: Apache-2.0
//
// A process dies between hosts, or a host vanishes, amid large all-reduces. Every survivor is told, with the rank; it
// prints after how long. Two ranks a host; who is lost is on the last one.
//
// usage: lost_host killed|vanished
//   killed    the last rank is killed
//   vanished  the last host's link is taken down: its ranks live on, and hear of nobody
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>

namespace {

constexpr int kRanksOfAHost = 2;

/// One clock for all hosts: they are one machine.
double milliseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

void lose(bool by_kill) {
  if (by_kill) std::raise(SIGKILL);
  if (by_kill || std::system("ip link set eth0 down") != 0) std::abort();
}

int run(bool by_kill) {
  kolo::Session session;
  const int rank = kolo::rank();
  const int size = kolo::size();
  const bool is_lost = by_kill ? rank == size - 1 : rank / kRanksOfAHost == size / kRanksOfAHost - 1;
  // The last rank says when it, or its host, will be lost; a thread of its own sees to that.
  const double lost_at = kolo::allreduce(rank == size - 1 ? milliseconds_now() + 500 : 0.0, kolo::ReduceOp::max);
  std::thread end;
  if (rank == size - 1) {
    end = std::thread([lost_at, by_kill] {
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(lost_at - milliseconds_now()));
      lose(by_kill);
    });
  }
  std::vector<float> x(std::size_t{4} << 20, 1);
  int outcome = 1;
  try {
    while (true) kolo::allreduce("x", kolo::view(x), kolo::AllreduceOptions{}.with_op(kolo::ReduceOp::max));
  } catch (const kolo::Error& error) {
    const double now = milliseconds_now();
    const std::string told = error.status().message();
    bool named = is_lost;
    for (int other = size - (by_kill ? 1 : kRanksOfAHost); other < size; ++other)
      named = named || told.find("rank " + std::to_string(other)) != std::string::npos;
    for (int other = 0; !is_lost && other < size - kRanksOfAHost; ++other)
      named = named && told.find("rank " + std::to_string(other) + " ") == std::string::npos;
    std::printf("%s rank %d: told after %.1f ms: %s\n", named ? "PASS" : "FAIL", rank, now - lost_at, told.c_str());
    outcome = named ? 0 : 1;
  }
  if (end.joinable()) end.join();
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const bool by_kill = std::string(argv[1]) == "killed";
  const pid_t child = ::fork();  // the rank: the other one sees how it ends
  if (child == 0) return run(by_kill);
  int status = -1;
  if (::waitpid(child, &status, 0) != child) return 1;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return by_kill && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : 1;
}
