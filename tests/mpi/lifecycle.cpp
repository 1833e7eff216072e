// SPDX-License-Identifier: Apache-2.0
//
// A rank of a job that starts or ends in an unusual way; started by lifecycle_run.py, which reads what it prints.
//
// usage: mpi_lifecycle SCENARIO RANK OWN_RANK
//   late      RANK goes on alone until the processes of the others have ended; then it uses Kolo, and leaves
//   exit      RANK ends by exit(3), without shutdown; the others go on until its process has ended, and leave
//   finalize  the same, but the others do not leave: their processes end
//   thread    on every rank one thread ends the process by exit(3) while another one makes call after call
//   setting   RANK has a setting that only it can find bad; then all start again, without
//   absent    RANK never calls init
//   abandon   RANK leaves by kolo::abandon, and its words; then all start again, and it leaves by an exception that
//             nobody has put into words
//   fork      every rank forks a child that only calls exit(0); the child of a child that uses Kolo is told not to
//
// Lines: "TOLD rank sentence" for each Error; "DONE rank" behind the last call of Kolo's; "FAIL rank what".
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/objects.hpp>

namespace {

std::string own;

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

void expect(bool condition, const std::string& what) {
  if (!condition) say("FAIL " + own + " " + what);
}

template <class Call>
void told_by(Call&& call) {
  try {
    call();
    say("TOLD " + own + " nothing");
  } catch (const kolo::Error& error) {
    say("TOLD " + own + " " + std::string(kolo::to_string(error.code())) + ": " + error.status().message());
  }
}

void wait_for_end_of(pid_t process) {
  const int end = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (end < 0) return expect(errno == ESRCH, "pidfd_open");
  pollfd ended{end, POLLIN, 0};
  while (::poll(&ended, 1, -1) < 0) expect(errno == EINTR, "poll");
  ::close(end);
}

void be_late(int rank) {
  const std::vector<pid_t> processes = kolo::allgather_object(::getpid());
  if (kolo::rank() == rank) {
    for (std::size_t other = 0; other < processes.size(); ++other)
      if (static_cast<int>(other) != rank) wait_for_end_of(processes[other]);
    told_by([] { kolo::barrier(); });
  }
  kolo::shutdown();
  say("DONE " + own);
}

void end_by_exit(int rank, bool others_leave) {
  const std::vector<pid_t> processes = kolo::allgather_object(::getpid());
  if (kolo::rank() == rank) std::exit(3);
  wait_for_end_of(processes[static_cast<std::size_t>(rank)]);
  if (!others_leave) std::_Exit(EXIT_SUCCESS);
  kolo::shutdown();
  say("DONE " + own);
}

void end_by_exit_of_a_thread() {
  kolo::Context& context = kolo::current_context();
  std::atomic<bool> begun{false};
  std::thread([&begun] {
    while (!begun.load()) std::this_thread::yield();
    std::exit(3);
  }).detach();
  for (;;) {  // until the process ends
    try {
      kolo::barrier(context);
    } catch (const kolo::Error&) {  // as soon as this rank or another one leaves
    }
    begun.store(true);
  }
}

/// Its exit status.
int run_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    std::exit(0);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void fork_children() {
  expect(run_child([] {}) == 0, "a child that only exits");
  expect(run_child([] {
           told_by([] { kolo::barrier(); });
           told_by([] { kolo::shutdown(); });
         }) == 0,
         "a child that uses Kolo");
  kolo::barrier();
  kolo::shutdown();
  say("DONE " + own);
}

/// The others wait meanwhile.
void leave_by_exceptions(bool chosen, const kolo::Options& options) {
  const auto wait = [] {
    float x = 1;
    told_by([&] { kolo::allreduce("w", kolo::view(&x, 1)); });
  };
  kolo::init(options);
  if (chosen) {
    kolo::abandon("no such file: digits.bin");
  } else {
    wait();
  }
  kolo::shutdown();
  say("DONE " + own);
  try {
    const kolo::Session session(options);
    if (chosen) throw std::runtime_error("out of luck");
    wait();
  } catch (const std::runtime_error&) {
  }
  say("DONE " + own);
  kolo::init();  // mpirun ends all as soon as one has ended, for MPI is not finalised after a fatal error
  kolo::barrier();
  kolo::shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return EXIT_FAILURE;
  const std::string scenario = argv[1];
  const int rank = std::atoi(argv[2]);
  own = argv[3];
  const bool chosen = own == argv[2];
  if (scenario == "absent" && chosen) ::pause();
  if (scenario == "setting") {
    told_by([&] { kolo::init(chosen ? kolo::Options{}.with_setting("KOLO_INTERFACE", "none9") : kolo::Options{}); });
  }
  if (scenario == "abandon") {
    leave_by_exceptions(chosen, chosen ? kolo::Options{}.with_setting("KOLO_SLOTS", "6") : kolo::Options{});
    return EXIT_SUCCESS;
  }
  kolo::init();
  if (scenario == "late") be_late(rank);
  if (scenario == "exit" || scenario == "finalize") end_by_exit(rank, scenario == "exit");
  if (scenario == "thread") end_by_exit_of_a_thread();
  if (scenario == "fork") fork_children();
  if (scenario == "setting") {
    kolo::barrier();
    kolo::shutdown();
    say("DONE " + own);
  }
  return EXIT_SUCCESS;
}
