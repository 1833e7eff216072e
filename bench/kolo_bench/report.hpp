// SPDX-License-Identifier: Apache-2.0
//
// Where results go: a table on standard output, as nccl-tests prints it, and JSON (its keys: bench/README.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "flags.hpp"
#include "job.hpp"
#include "measure.hpp"

namespace kolo_bench {

/// One row: a collective at one size.
struct Row {
  std::string collective;
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  std::string dtype;
  std::string op;
  int root = -1;  ///< -1: the collective has none
  bool in_place = true;
  double bus_factor = 1;          ///< busbw / algbw
  nlohmann::ordered_json more{};  ///< further members of the record: model, tensors, ...
};

/// Prints on rank 0 only. One thread.
class Report {
 public:
  Report(const Flags& flags, const Job& job);
  /// `measured`: the first is the one that the row is about, the others are its peers.
  void add(const Row& row, const std::vector<Measured>& measured);
  /// Adds to wrong() what `add` does not know of; -1 is nothing.
  void count_wrong(std::int64_t wrong) { wrong_ += wrong > 0 ? wrong : 0; }
  /// A record without a row of the table, and what to print for it.
  void add_lines(const std::string& lines, nlohmann::ordered_json record);
  /// Prints what the rows say together and writes the JSON file, if one is wanted. Throws std::runtime_error when it
  /// cannot be written.
  void finish() const;
  [[nodiscard]] std::int64_t wrong() const { return wrong_; }

 private:
  void print_header() const;
  void print(const Row& row, const std::vector<Measured>& measured, double algbw) const;
  nlohmann::ordered_json record_of(const Row& row, const std::vector<Measured>& measured, double algbw) const;

  const Flags& flags_;
  const int ranks_;
  const int nodes_;
  const bool prints_;
  bool has_header_ = false;
  nlohmann::ordered_json records_ = nlohmann::ordered_json::array();
  std::int64_t wrong_ = 0;
  std::vector<double> busbw_;
  std::map<std::string, std::vector<double>> ratios_;  ///< by peer
};

/// #wrong as a column: a number, or N/A where nothing was compared.
std::string format_wrong(std::int64_t wrong);

}  // namespace kolo_bench
