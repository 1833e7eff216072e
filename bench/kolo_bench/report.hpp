// SPDX-License-Identifier: Apache-2.0
//
// Where results go: a table on standard output, as nccl-tests prints it, and JSON.
#pragma once

#include <cstdint>
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
  bool in_place = true;
  double bus_factor = 1;  ///< busbw / algbw
  std::string model;      ///< step only
  std::int64_t tensors = 0;
};

/// Prints on rank 0 only. One thread.
class Report {
 public:
  Report(const Flags& flags, const Job& job);
  /// `measured`: the first is the one that the row is about, the others are its peers.
  void add(const Row& row, const std::vector<Measured>& measured);
  /// Writes the JSON file, if one is wanted. Throws std::runtime_error when it cannot be written.
  void finish() const;
  [[nodiscard]] std::int64_t wrong() const { return wrong_; }

 private:
  void print_header() const;

  const Flags& flags_;
  const int ranks_;
  const int nodes_;
  const bool prints_;
  nlohmann::ordered_json records_ = nlohmann::ordered_json::array();
  std::int64_t wrong_ = 0;
};

}  // namespace kolo_bench
