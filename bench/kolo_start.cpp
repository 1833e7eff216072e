// SPDX-License-Identifier: Apache-2.0
//
// kolo-start: how long a job took to start, and how much memory each rank has then. Every rank joins the job, checks an
// all-reduce, and reads its own memory while all ranks are there; rank 0 prints one line of JSON.
//
//     kolo-run -np 64 kolo-start
//
// scripts/bench start runs it with 2 to 256 ranks.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <kolo/kolo.hpp>

namespace {

namespace po = boost::program_options;

struct BadFlags : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Of the machine's monotonic clock, which all processes share.
std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Rank {
  std::int64_t called_ns = 0;  ///< `init`
  std::int64_t joined_ns = 0;  ///< it returned
  std::int64_t pss_kib = 0;    ///< its own pages, and its share of those that it shares
  std::int64_t own_kib = 0;    ///< its own pages alone
};

/// Of /proc/self/smaps_rollup, in KiB.
void read_memory(Rank& rank) {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  while (file >> word) {
    std::int64_t kib = 0;
    if (word == "Pss:" && file >> kib) rank.pss_kib = kib;
    if ((word == "Private_Clean:" || word == "Private_Dirty:") && file >> kib) rank.own_kib += kib;
  }
  if (rank.pss_kib == 0) throw std::runtime_error("/proc/self/smaps_rollup does not say how much memory this rank has");
}

/// Sums that are exact: by name, and then without one.
void check_sums() {
  const auto n = static_cast<std::int64_t>(kolo::size());
  std::vector<std::int64_t> named(1000);
  std::iota(named.begin(), named.end(), kolo::rank());
  std::vector<std::int64_t> unnamed = named;
  kolo::allreduce("kolo-start", kolo::view(named), kolo::ReduceOp::sum);
  kolo::allreduce(kolo::view(unnamed), kolo::ReduceOp::sum);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(named.size()); ++i) {
    const std::int64_t sum = n * (n - 1) / 2 + n * i;
    const auto at = static_cast<std::size_t>(i);
    if (named[at] != sum || unnamed[at] != sum) {
      throw std::runtime_error("rank " + std::to_string(kolo::rank()) + " has a wrong sum");
    }
  }
}

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

nlohmann::ordered_json summary(const std::vector<Rank>& ranks, std::optional<std::int64_t> began_ns) {
  std::int64_t called = std::numeric_limits<std::int64_t>::min();
  std::int64_t joined = called;
  std::int64_t pss = 0;
  std::int64_t pss_most = 0;
  std::int64_t own = 0;
  for (const Rank& one : ranks) {
    called = std::max(called, one.called_ns);
    joined = std::max(joined, one.joined_ns);
    pss += one.pss_kib;
    pss_most = std::max(pss_most, one.pss_kib);
    own += one.own_kib;
  }
  const auto count = static_cast<std::int64_t>(ranks.size());
  nlohmann::ordered_json line;
  line["ranks"] = count;
  if (began_ns) line["start_s"] = seconds(joined - *began_ns);
  line["meeting_s"] = seconds(joined - called);
  line["pss_mib"] = static_cast<double>(pss) / 1024 / static_cast<double>(count);
  line["pss_most_mib"] = static_cast<double>(pss_most) / 1024;
  line["own_mib"] = static_cast<double>(own) / 1024 / static_cast<double>(count);
  line["sums"] = "right";
  return line;
}

/// Empty: help was printed.
std::optional<std::int64_t> parse(int argc, char** argv, bool& help) {
  std::int64_t began = 0;
  po::options_description options("flags");
  auto add = options.add_options();
  add("help,h", "print this");
  add("began", po::value(&began)->value_name("NS"), "when the launcher was started, by the machine's monotonic clock");
  po::variables_map given;
  try {
    po::store(po::command_line_parser(argc, argv).options(options).positional({}).run(), given);
    po::notify(given);
  } catch (const po::error& error) {
    throw BadFlags(error.what());
  }
  help = given.count("help") != 0;
  if (help) {
    std::cout << "Measures how long a job took to start, and the memory of its ranks.\n\n"
              << options << "\nExit status: 0 done, 1 the job failed, 2 the flags are wrong.\n";
  }
  return given.count("began") != 0 ? std::optional(began) : std::nullopt;
}

void run(std::optional<std::int64_t> began) {
  Rank mine;
  mine.called_ns = now_ns();
  const kolo::Session session;
  mine.joined_ns = now_ns();
  check_sums();
  kolo::barrier();
  read_memory(mine);
  const std::vector<Rank> ranks = kolo::allgather_object(mine);
  if (kolo::rank() == 0) std::cout << summary(ranks, began).dump() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    bool help = false;
    const std::optional<std::int64_t> began = parse(argc, argv, help);
    if (!help) run(began);
    return 0;
  } catch (const BadFlags& error) {
    std::cerr << "kolo-start: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "kolo-start: " << error.what() << "\n";
    return 1;
  }
}
