// SPDX-License-Identifier: Apache-2.0
//
// A rank of a job on emulated devices in which one rank is killed amid messages from device to device; started by
// tests/mpi/faults_run.py, which reads what it prints (tests/mpi/faults_survivor.cpp).
//
// usage: mpi_cuda_survivor device_messages VICTIM
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include <kolo/context.hpp>
#include <kolo/point_to_point.hpp>

#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {
namespace {

constexpr int kMostRounds = 100000;
constexpr std::int64_t kElements = 300000;

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

/// From each rank to the next, again and again.
class Ring {
 public:
  Ring() : out_(DType::int32, kElements, stream_, always(rank())), in_(DType::int32, kElements, stream_, always(-1)) {}

  void pass() {
    Handle sent = send_async(out_.view(), (rank() + 1) % size());
    Future<Received> got = recv_async(in_.view(), (rank() + size() - 1) % size());
    wait_on(got, stream_);
    got.wait();
    sent.wait();
  }
  /// Until all devices have found each other: then no message goes by the host any more.
  void find() {
    for (int round = 0; round < kMostRounds; ++round) {
      const std::uint64_t before = emulated::calls("ncclRecv");
      pass();
      if (allreduce("found", emulated::calls("ncclRecv") > before ? 1 : 0, ReduceOp::min) == 1) return;
    }
    say("FAIL " + std::to_string(rank()) + " the devices have not found each other");
  }

 private:
  const RankStream stream_;
  const DeviceTensor out_;
  const DeviceTensor in_;
};

/// Ends with an Error, for those who survive.
Status exchange_until_the_end(int victim) {
  std::thread killer;
  Status told;
  try {
    Ring ring;
    ring.find();
    if (rank() == victim) {
      killer = std::thread([] {
        std::this_thread::sleep_for(std::chrono::microseconds(::getpid() * 997L % 30'000));  // at any moment
        std::raise(SIGKILL);
      });
    }
    while (true) ring.pass();
  } catch (const Error& error) {
    told = error.status();
  }
  if (killer.joinable()) killer.join();
  return told;
}

int run(int victim) {
  emulated::Config config;
  config.devices = 8;
  config.ranks_are_processes = true;
  emulated::reset(config);
  init(Options{}.with_setting("KOLO_GPU_BACKEND", "nccl"));
  bind();
  const std::string own = std::to_string(rank());
  say("PROCESS " + own + " " + std::to_string(::getpid()));
  const Status told = exchange_until_the_end(victim);
  say("ERROR " + own + " " + std::string(to_string(told.code())) + " " + told.message());
  shutdown();
  emulated::drain();
  for (const emulated::Report& report : emulated::take_reports()) say("FAIL " + own + " " + report.text);
  say("SURVIVED " + own);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace kolo::cuda::test

int main(int argc, char** argv) {
  if (argc != 3) return EXIT_FAILURE;
  return kolo::cuda::test::run(std::atoi(argv[2]));
}
