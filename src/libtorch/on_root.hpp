// SPDX-License-Identifier: Apache-2.0
//
// What one rank does for all, for the other files of this module.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <kolo/context.hpp>
#include <kolo/error.hpp>

namespace kolo::libtorch {

/// Runs `body` on the root; the others wait for it. What it throws is thrown on every rank, as an `Error` of `code`
/// (or out_of_memory) that begins with `caller`. Returns the root's result, on every rank.
std::string on_root(const Group& group, std::string_view caller, int root, ErrorCode code,
                    const std::function<std::string()>& body);

}  // namespace kolo::libtorch
