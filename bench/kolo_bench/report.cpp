// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "sizes.hpp"

namespace kolo_bench {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double geometric_mean(const std::vector<double>& values) {
  double logs = 0;
  for (const double value : values) logs += std::log(value);
  return std::exp(logs / static_cast<double>(values.size()));
}

/// How the ratios of neighbouring samples spread.
Summary spread_of(const Measured& peer, const Measured& own) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(peer.samples.size(), own.samples.size()); ++i) {
    ratios.push_back(peer.samples[i] / own.samples[i]);
  }
  return summarize(std::move(ratios));
}

double ratio_of(const Measured& peer, const Measured& own) {
  return own.microseconds.median > 0 ? peer.microseconds.median / own.microseconds.median : 0;
}

}  // namespace

std::string format_wrong(std::int64_t wrong) { return wrong < 0 ? "N/A" : std::to_string(wrong); }

Report::Report(const Flags& flags, const Job& job)
    : flags_(flags), ranks_(job.size()), nodes_(job.nodes()), prints_(job.rank() == 0) {
  if (!prints_) return;
  const std::string groups = flags_.split == 0 ? "" : " in groups of " + std::to_string(flags_.split);
  std::printf("# %s%s, %d ranks%s on %d node%s%s; times in microseconds, bandwidths in GB/s (1e9 bytes)\n",
              flags_.mode_name.c_str(), flags_.cuda ? " on GPUs" : "", ranks_, groups.c_str(), nodes_,
              nodes_ == 1 ? "" : "s", flags_.peer_only ? ", without Kolo" : "");
  std::fflush(stdout);
}

void Report::print_header() const {
  std::printf("# %10s %12s %9s %8s %5s %5s %10s %10s %10s %8s %8s %7s", "size", "count", "type", "redop", "root",
              "place", "time", "p10", "p90", "algbw", "busbw", "#wrong");
  for (std::size_t i = flags_.peer_only ? 1 : 0; i < flags_.baselines.size(); ++i) {
    std::printf(" %14s %7s %13s %7s", to_string(flags_.baselines[i]).c_str(), "ratio", "p10-p90", "#wrong");
  }
  std::printf("\n");
}

void Report::print(const Row& row, const std::vector<Measured>& measured, double algbw) const {
  const Measured& own = measured.front();
  std::printf("  %10s %12lld %9s %8s %5d %5s %10.2f %10.2f %10.2f %8.3f %8.3f %7s", format_size(row.bytes).c_str(),
              static_cast<long long>(row.count), row.dtype.c_str(), row.op.c_str(), row.root,
              row.in_place ? "in" : "out", own.microseconds.median, own.microseconds.p10, own.microseconds.p90, algbw,
              algbw * row.bus_factor, format_wrong(own.wrong).c_str());
  for (std::size_t i = 1; i < measured.size(); ++i) {
    const Summary ratio = spread_of(measured[i], own);
    char spread[32];
    std::snprintf(spread, sizeof spread, "%.2f-%.2f", ratio.p10, ratio.p90);
    std::printf(" %14.2f %7.2f %13s %7s", measured[i].microseconds.median, ratio_of(measured[i], own), spread,
                format_wrong(measured[i].wrong).c_str());
  }
  if (flags_.mode == Mode::latency) std::printf("  %s", row.collective.c_str());
  if (row.more.contains("submit")) std::printf("  %s", row.more["submit"].get<std::string>().c_str());
  if (row.more.contains("host_step_us")) {
    std::printf("; host: %.2f for all submissions, %.3f each, %.2f the whole step",
                row.more["host_submit_us"].get<double>(), row.more["host_submit_one_us"].get<double>(),
                row.more["host_step_us"].get<double>());
  }
  std::printf("\n");
  std::fflush(stdout);
}

nlohmann::ordered_json Report::record_of(const Row& row, const std::vector<Measured>& measured, double algbw) const {
  const Measured& own = measured.front();
  nlohmann::ordered_json record{{"collective", row.collective},
                                {"bytes", row.bytes},
                                {"count", row.count},
                                {"dtype", row.dtype},
                                {"op", row.op},
                                {"root", row.root},
                                {"ranks", ranks_},
                                {"nodes", nodes_},
                                {"split", flags_.split},
                                {"in_place", row.in_place},
                                {"contestant", own.name},
                                {"time_us", own.microseconds.median},
                                {"time_p10_us", own.microseconds.p10},
                                {"time_p90_us", own.microseconds.p90},
                                {"samples", own.samples.size()},
                                {"algbw", algbw},
                                {"busbw", algbw * row.bus_factor},
                                {"wrong", own.wrong},
                                {"arena", flags_.arena},
                                {"device", flags_.cuda ? "cuda" : "cpu"}};
  if (!row.more.is_null()) record.update(row.more);
  for (std::size_t i = 1; i < measured.size(); ++i) {
    const Measured& peer = measured[i];
    const Summary ratio = spread_of(peer, own);
    record["baseline"][peer.name] = {{"time_us", peer.microseconds.median},
                                     {"time_p10_us", peer.microseconds.p10},
                                     {"time_p90_us", peer.microseconds.p90},
                                     {"ratio", ratio_of(peer, own)},
                                     {"ratio_p10", ratio.p10},
                                     {"ratio_p90", ratio.p90},
                                     {"wrong", peer.wrong}};
  }
  return record;
}

void Report::add(const Row& row, const std::vector<Measured>& measured) {
  for (const Measured& one : measured) count_wrong(one.wrong);
  if (!prints_) return;
  const double time = measured.front().microseconds.median;
  const double algbw = time > 0 ? static_cast<double>(row.bytes) / time / 1e3 : 0;
  if (!has_header_) print_header();
  has_header_ = true;
  print(row, measured, algbw);
  records_.push_back(record_of(row, measured, algbw));
  busbw_.push_back(algbw * row.bus_factor);
  for (std::size_t i = 1; i < measured.size(); ++i) {
    ratios_[measured[i].name].push_back(ratio_of(measured[i], measured.front()));
  }
}

void Report::add_lines(const std::string& lines, nlohmann::ordered_json record) {
  if (!prints_) return;
  std::printf("%s\n", lines.c_str());
  std::fflush(stdout);
  record["ranks"] = ranks_;
  record["nodes"] = nodes_;
  records_.push_back(std::move(record));
}

void Report::finish() const {
  if (!prints_) return;
  if (has_header_) {
    std::printf("# wrong values: %lld; average bus bandwidth: %.3f GB/s", static_cast<long long>(wrong_), mean(busbw_));
    for (const auto& [peer, ratios] : ratios_) {
      std::printf("; ratio of %s, geometric mean: %.2f", peer.c_str(), geometric_mean(ratios));
    }
    std::printf("\n");
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw std::runtime_error("standard output could not be written");
  if (flags_.json.empty()) return;
  std::ofstream stream(flags_.json);
  stream << records_.dump(2) << "\n";
  stream.close();
  if (!stream) throw std::runtime_error("cannot write '" + flags_.json + "'");
}

}  // namespace kolo_bench
