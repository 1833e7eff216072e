// SPDX-License-Identifier: Apache-2.0
//
// Between hosts data goes over the link, all of it and not much more: the interface's own counter says so. (Hosts that
// are network namespaces share a machine, and a transport that finds shared memory would carry nothing over the link.)
// Prints the time that it took, and the CPU time of the process.
//
// usage: link_bytes [MIB [ROUNDS]]
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>

namespace {

/// What has been sent by `eth0`, of this network namespace.
std::int64_t sent_bytes() {
  std::ifstream devices("/proc/self/net/dev");
  for (std::string line; std::getline(devices, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).find("eth0") == std::string::npos) continue;
    std::istringstream numbers(line.substr(colon + 1));
    std::int64_t number = 0;
    for (int column = 0; column < 9; ++column) numbers >> number;  // 8 of what was received, and bytes sent
    return number;
  }
  return -1;
}

double cpu_seconds() {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return -1;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
  int failures = 0;
  {
    const kolo::Session session;
    const std::int64_t elements = (argc > 1 ? std::atoll(argv[1]) : 16) * (1 << 20) / std::int64_t{sizeof(float)};
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 4;
    std::vector<float> x(static_cast<std::size_t>(elements));
    std::vector<float> out(x.size());
    kolo::barrier();
    const std::int64_t before = sent_bytes();
    double took = 0;
    double used = 0;
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((static_cast<int>(i) + kolo::rank()) % 64);
      const double begun = seconds_now();
      const double begun_cpu = cpu_seconds();
      kolo::allreduce_into("x", kolo::const_view(x), kolo::view(out),
                           kolo::AllreduceOptions{}.with_op(kolo::ReduceOp::sum));
      took += seconds_now() - begun;
      used += cpu_seconds() - begun_cpu;
      for (std::size_t i = 0; i < out.size(); ++i) {
        float sum = 0;
        for (int rank = 0; rank < kolo::size(); ++rank) sum += static_cast<float>((static_cast<int>(i) + rank) % 64);
        if (out[i] == sum) continue;
        std::printf("FAIL rank %d: element %zu of round %d is %g, not %g\n", kolo::rank(), i, round,
                    static_cast<double>(out[i]), static_cast<double>(sum));
        ++failures;
        break;
      }
    }
    kolo::barrier();
    // Two hosts send each other all of their sums.
    const std::int64_t sent = sent_bytes() - before;
    const std::int64_t due = rounds * elements * std::int64_t{sizeof(float)};
    if (before < 0 || sent < due || sent > due + due / 4) ++failures;
    std::printf("%s rank %d: %lld bytes over the link for %lld; %.1f ms a round, CPU %.1f %%\n",
                failures == 0 ? "PASS" : "FAIL", kolo::rank(), static_cast<long long>(sent),
                static_cast<long long>(due), took / rounds * 1e3, used / took * 100);
    failures = kolo::allreduce(failures, kolo::ReduceOp::sum);
  }
  return failures == 0 ? 0 : 1;
}
