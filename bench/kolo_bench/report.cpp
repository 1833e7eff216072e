// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "sizes.hpp"

namespace kolo_bench {

Report::Report(const Flags& flags, const Job& job)
    : flags_(flags), ranks_(job.size()), nodes_(job.nodes()), prints_(job.rank() == 0) {
  if (prints_) print_header();
}

void Report::print_header() const {
  std::printf("# %s, %d ranks on %d node%s; times in microseconds, bandwidths in GB/s (1e9 bytes)\n",
              flags_.mode_name.c_str(), ranks_, nodes_, nodes_ == 1 ? "" : "s");
  std::printf("# %10s %12s %9s %8s %5s %10s %10s %10s %8s %8s %7s", "size", "count", "type", "redop", "place", "time",
              "p10", "p90", "algbw", "busbw", "#wrong");
  if (!flags_.peer_only) {
    for (const Baseline baseline : flags_.baselines) {
      std::printf(" %14s %7s %7s", to_string(baseline).c_str(), "ratio", "#wrong");
    }
  }
  std::printf("\n");
}

void Report::add(const Row& row, const std::vector<Measured>& measured) {
  for (const Measured& one : measured) wrong_ += one.wrong > 0 ? one.wrong : 0;
  if (!prints_) return;
  const Measured& own = measured.front();
  const double time = own.microseconds.median;
  const double algbw = time > 0 ? static_cast<double>(row.bytes) / time / 1e3 : 0;
  const double busbw = algbw * row.bus_factor;
  std::printf("  %10s %12lld %9s %8s %5s %10.2f %10.2f %10.2f %8.3f %8.3f %7s", format_size(row.bytes).c_str(),
              static_cast<long long>(row.count), row.dtype.c_str(), row.op.c_str(), row.in_place ? "in" : "out", time,
              own.microseconds.p10, own.microseconds.p90, algbw, busbw,
              own.wrong < 0 ? "N/A" : std::to_string(own.wrong).c_str());
  nlohmann::ordered_json record{{"collective", row.collective},
                                {"bytes", row.bytes},
                                {"count", row.count},
                                {"dtype", row.dtype},
                                {"op", row.op},
                                {"ranks", ranks_},
                                {"nodes", nodes_},
                                {"in_place", row.in_place},
                                {"time_us", time},
                                {"time_p10_us", own.microseconds.p10},
                                {"time_p90_us", own.microseconds.p90},
                                {"samples", own.samples},
                                {"algbw", algbw},
                                {"busbw", busbw},
                                {"wrong", own.wrong}};
  if (!row.model.empty()) {
    record["model"] = row.model;
    record["tensors"] = row.tensors;
  }
  for (std::size_t i = 1; i < measured.size(); ++i) {
    const Measured& peer = measured[i];
    const double ratio = time > 0 ? peer.microseconds.median / time : 0;
    std::printf(" %14.2f %7.2f %7s", peer.microseconds.median, ratio,
                peer.wrong < 0 ? "N/A" : std::to_string(peer.wrong).c_str());
    record["baseline"][peer.name] = {{"time_us", peer.microseconds.median},
                                     {"time_p10_us", peer.microseconds.p10},
                                     {"time_p90_us", peer.microseconds.p90},
                                     {"ratio", ratio},
                                     {"wrong", peer.wrong}};
  }
  std::printf("\n");
  std::fflush(stdout);
  records_.push_back(std::move(record));
}

void Report::finish() const {
  if (!prints_ || flags_.json.empty()) return;
  std::ofstream stream(flags_.json);
  stream << records_.dump(2) << "\n";
  stream.close();
  if (!stream) throw std::runtime_error("cannot write '" + flags_.json + "'");
}

}  // namespace kolo_bench
