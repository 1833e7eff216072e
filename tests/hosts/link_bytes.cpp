// SPDX-License-Identifier: Apache-2.0
//
// Between hosts data goes over the link, all of it and not much more: the interface's own counter says so. (Hosts that
// are network namespaces share a machine, and a transport that finds shared memory would carry nothing over the link.)
// Prints how long a round took beside what the link takes, and what CPU time the process took of it.
//
// usage: link_bytes [KIB [ROUNDS [MBIT_PER_SECOND [HOSTS]]]]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/detail/counters.hpp>
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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// What a link of this rate takes for an all-reduce: frames of 1514 bytes on it hold 1448 of the tensor, and each host
/// sends 2 (h - 1) / h of that.
double link_seconds(std::int64_t bytes, int hosts, double mbit) {
  return static_cast<double>(bytes) * 2 * (hosts - 1) / hosts * 1514 / 1448 / (mbit * 1e6 / 8);
}

}  // namespace

int main(int argc, char** argv) {
  int failures = 0;
  {
    const kolo::Session session;
    const std::int64_t bytes = (argc > 1 ? std::atoll(argv[1]) : 16 << 10) * 1024;
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 4;
    const double mbit = argc > 3 ? std::atof(argv[3]) : 0;
    const int hosts = argc > 4 ? std::atoi(argv[4]) : 2;
    const int rank = kolo::rank();
    const int size = kolo::size();
    std::vector<float> x(static_cast<std::size_t>(bytes) / sizeof(float));
    std::vector<float> out(x.size());
    const auto options = kolo::AllreduceOptions{}.with_op(kolo::ReduceOp::sum);
    // Connections, staging memory and pages are made first.
    std::vector<float> first(std::min<std::size_t>(x.size(), std::size_t{1} << 20), 1.0F);
    for (int round = 0; round < 2; ++round) kolo::allreduce("first", kolo::view(first), options);
    kolo::barrier();
    const std::int64_t before = sent_bytes();
    const std::uint64_t slept_before = kolo::detail::counters().sleeps;
    std::vector<double> took;
    double used = 0;
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((static_cast<int>(i) + rank) % 64);
      std::fill(out.begin(), out.end(), -1.0F);
      kolo::barrier();
      const double begun = seconds_now();
      const double begun_cpu = cpu_seconds();
      kolo::allreduce_into("x", kolo::const_view(x), kolo::view(out), options);
      took.push_back(seconds_now() - begun);
      used += cpu_seconds() - begun_cpu;
      for (std::size_t i = 0; i < out.size(); ++i) {
        float sum = 0;
        for (int other = 0; other < size; ++other) sum += static_cast<float>((static_cast<int>(i) + other) % 64);
        if (out[i] == sum) continue;
        std::printf("FAIL rank %d: element %zu of round %d is %g, not %g\n", rank, i, round,
                    static_cast<double>(out[i]), static_cast<double>(sum));
        ++failures;
        break;
      }
    }
    kolo::barrier();
    const std::int64_t sent = sent_bytes() - before;
    const std::int64_t due = rounds * bytes * 2 * (hosts - 1) / hosts;
    constexpr std::int64_t kSmall = 64 << 10;  // beside which what the control connections send is no longer small
    const std::int64_t most = due + due / 4 + rounds * kSmall;
    if (before < 0 || sent < due || sent > most) ++failures;
    const bool is_pushed = kolo::describe(kolo::world()).find("between nodes: UCX") == std::string::npos;
    if (kolo::detail::counters().pushes != 0 && !is_pushed) ++failures;
    double all = 0;
    for (const double one : took) all += one;
    const double typical = median(took);
    std::printf("%s rank %d: %lld bytes over the link for %lld; %.2f ms a round", failures == 0 ? "PASS" : "FAIL", rank,
                static_cast<long long>(sent), static_cast<long long>(due), typical * 1e3);
    if (mbit > 0) std::printf(" (%.2f x the link's)", typical / link_seconds(bytes, hosts, mbit));
    std::printf(", CPU %.3f ms %.2f %%, %llu sleeps a round, %llu pushes\n", used / rounds * 1e3, used / all * 100,
                static_cast<unsigned long long>((kolo::detail::counters().sleeps - slept_before) /
                                                static_cast<std::uint64_t>(rounds)),
                static_cast<unsigned long long>(kolo::detail::counters().pushes));
    failures = kolo::allreduce(failures, kolo::ReduceOp::sum);
  }
  return failures == 0 ? 0 : 1;
}
