// SPDX-License-Identifier: Apache-2.0
//
// Sizes as people write them: "48K" is 48 x 1024 bytes, as in nccl-tests.
#pragma once

#include <cstdint>
#include <string>

namespace kolo_bench {

/// "4", "48K", "3M", "1G"; throws std::invalid_argument saying what would be right.
std::int64_t parse_size(const std::string& text);
/// The shortest exact spelling: 49152 is "48K", 49153 is "49153".
std::string format_size(std::int64_t bytes);

}  // namespace kolo_bench
