// SPDX-License-Identifier: Apache-2.0
//
// The index of a checkpoint, in its folder.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/index.hpp"

namespace kolo::checkpoint {

/// Reads, decodes and checks it. Memory is taken once its beginning has been checked. Throws `Error` (io) with the path
/// of the file. `text`: what was read.
[[nodiscard]] Index read_index(const std::string& folder, std::string& text);

/// The names of all files of the checkpoint. Throws as `read_index`.
[[nodiscard]] std::vector<std::string> files_of(const std::string& folder);

}  // namespace kolo::checkpoint
