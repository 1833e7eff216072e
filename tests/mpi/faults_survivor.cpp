// SPDX-License-Identifier: Apache-2.0
//
// A rank of a job in which one rank dies; started by faults_run.py, which reads what it prints.
//
// usage: mpi_faults_survivor SCENARIO VICTIM
//   waiting   the others wait for a tensor that the victim never submits; it is killed
//   large     everybody reduces large tensors without pause; the victim is killed with one in flight
//   gathers   everybody gathers many small tensors without pause; the victim is killed when it has just submitted some
//   gathered  the same, when one of those is over and the others of its batch are not
//   stopped_gathers  as gathers, and the victim is stopped
//   messages  the victim is read from in long messages, and reads from another one; it is killed amid it
//   idle      the others' main threads sleep, nothing is driven; the victim is killed
//   forked    the same; a child of the victim, which it forked after the start, lives on
//   joined    the others have joined; the victim is killed amid its steps
//   stopped_joined  the same, and the victim is stopped
//   absent    the victim has joined, and the others go on; it is killed
//   stopped   the victim is stopped (SIGSTOP), which no descriptor shows; the deadline finds it
//
// Lines: "PROCESS rank pid" from everybody; "ERROR rank code sentence" and "SURVIVED rank" from survivors, after
// shutdown has returned.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>
#include <kolo/join.hpp>
#include <kolo/point_to_point.hpp>

namespace {

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

/// What a survivor was told.
using Told = kolo::Status;

template <class Call>
Told told_by(Call&& call) {
  try {
    call();
  } catch (const kolo::Error& error) {
    return error.status();
  }
  return {};
}

void die(int signal) {
  std::raise(signal);
  std::abort();  // only a stopped process gets here, when it is continued
}

void wait_for_the_dead(bool victim, int signal) {
  if (victim) die(signal);
  std::vector<float> x(1000, 1);
  kolo::allreduce("w", kolo::view(x));
}

void reduce_without_pause(bool victim) {
  std::vector<float> x(std::size_t{4} << 20, 1);
  std::vector<float> y(std::size_t{4} << 20, 1);
  for (int i = 0;; ++i) {
    kolo::Handle first = kolo::allreduce_async("x", kolo::view(x));
    kolo::Handle second = kolo::allreduce_async("y", kolo::view(y));
    first.wait();
    if (victim && i == 3) die(SIGKILL);
    second.wait();
  }
}

void gather_without_pause(bool victim, int signal, bool waits) {
  constexpr std::size_t kTensors = 50;
  const std::vector<float> x(5000, 1);
  std::vector<std::vector<float>> out(kTensors, std::vector<float>(x.size() * static_cast<std::size_t>(kolo::size())));
  for (int i = 0;; ++i) {
    std::vector<kolo::Handle> open;
    for (std::size_t k = 0; k < kTensors; ++k)
      open.push_back(kolo::allgather_into_async("g" + std::to_string(k), kolo::const_view(x), kolo::view(out[k])));
    if (waits) open.front().wait();
    if (victim && i == 3) die(signal);
    kolo::wait_all(open);
  }
}

void exchange_without_pause(int victim) {
  const int rank = kolo::rank();
  const int receiver = (victim + 1) % kolo::size();
  const std::vector<float> x(std::size_t{4} << 20, 1);
  std::vector<float> y(x.size());
  std::atomic<int> rounds{0};
  std::thread killer([&rounds, rank, victim] {
    while (rounds.load() < 3) std::this_thread::yield();
    if (rank != victim) return;
    std::this_thread::sleep_for(std::chrono::microseconds(::getpid() * 997L % 60'000));  // at any moment of a round
    die(SIGKILL);
  });
  try {
    while (true) {
      ++rounds;
      if (rank == victim) kolo::send(kolo::const_view(x), receiver);
      if (rank == receiver) kolo::recv(kolo::view(y), victim);
      kolo::sendrecv(kolo::const_view(x), (rank + 1) % kolo::size(), kolo::view(y),
                     (rank + kolo::size() - 1) % kolo::size());
    }
  } catch (...) {
    rounds = 3;
    killer.join();
    throw;
  }
}

void sleep(bool victim) {
  if (victim) die(SIGKILL);
  std::promise<Told> told;
  kolo::Handle handle = kolo::barrier_async("never");
  handle.on_done([&told](const kolo::Status& status) { told.set_value(status); });
  throw kolo::Error(told.get_future().get());
}

void join_a_worker(bool victim, int signal) {
  if (!victim) {
    kolo::join();
    return;
  }
  std::vector<float> x(100000, 1);
  for (int step = 0; step < 20; ++step)
    kolo::allreduce("x", kolo::view(x));  // the first ends when the others have joined
  die(signal);
}

void go_on_without(bool victim) {
  std::vector<float> x(100000, 1);
  if (!victim) {
    while (true) kolo::allreduce("x", kolo::view(x));
  }
  const kolo::Future<int> join = kolo::join_async();
  while (kolo::metrics().batches < 20) std::this_thread::yield();
  die(SIGKILL);
}

/// The child has copies of all descriptors that it was not told to close.
void leave_a_child() {
  if (::fork() != 0) return;
  ::alarm(20);
  ::pause();
}

/// Ends with an Error, for those who survive.
void run(const std::string& scenario, int victim_rank) {
  const bool victim = kolo::rank() == victim_rank;
  kolo::barrier();  // which may be broken by the victim's death already: it completes here and there
  if (scenario == "waiting") wait_for_the_dead(victim, SIGKILL);
  if (scenario == "stopped") wait_for_the_dead(victim, SIGSTOP);
  if (scenario == "large") reduce_without_pause(victim);
  if (scenario == "gathers") gather_without_pause(victim, SIGKILL, false);
  if (scenario == "gathered") gather_without_pause(victim, SIGKILL, true);
  if (scenario == "stopped_gathers") gather_without_pause(victim, SIGSTOP, false);
  if (scenario == "messages") exchange_without_pause(victim_rank);
  if (scenario == "joined") join_a_worker(victim, SIGKILL);
  if (scenario == "stopped_joined") join_a_worker(victim, SIGSTOP);
  if (scenario == "absent") go_on_without(victim);
  if (scenario == "idle") sleep(victim);
  if (scenario == "forked") {
    if (victim) leave_a_child();
    sleep(victim);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return EXIT_FAILURE;
  kolo::init();
  const std::string rank = std::to_string(kolo::rank());
  say("PROCESS " + rank + " " + std::to_string(::getpid()));
  const Told told = told_by([&] { run(argv[1], std::atoi(argv[2])); });
  say("ERROR " + rank + " " + std::string(kolo::to_string(told.code())) + " " + told.message());
  const Told later = told_by([] { kolo::barrier(); });
  if (later.message() != told.message()) say("FAIL " + rank + " a later call says: " + later.message());
  kolo::shutdown();
  say("SURVIVED " + rank);
  return EXIT_SUCCESS;
}
