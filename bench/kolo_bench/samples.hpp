// SPDX-License-Identifier: Apache-2.0
//
// What was measured, and the three numbers that are told of it.
#pragma once

#include <vector>

namespace kolo_bench {

struct Summary {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
};

/// Percentiles by linear interpolation between the two nearest samples; all zero for no samples.
Summary summarize(std::vector<double> samples);

/// Whether more samples would hardly move the median: the medians of the two halves, in the order of measuring, lie
/// within 2 % of each other, and there are at least 20.
bool is_stable(const std::vector<double>& samples);

}  // namespace kolo_bench
