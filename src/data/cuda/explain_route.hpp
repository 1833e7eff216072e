// SPDX-License-Identifier: Apache-2.0
//
// Where a tensor of a device is reduced, or moved, and why: in words, for the log. What `plan`
// (collective_portions.hpp) does.
#pragma once

#include <string>

#include "data/cuda/portions.hpp"

namespace kolo::cuda {

/// "through a fusion buffer, because ...", "where it lies, because ...".
[[nodiscard]] std::string explain_route(const PortionPlanner& portions, const data::Run& run, const data::Piece& piece);

}  // namespace kolo::cuda
