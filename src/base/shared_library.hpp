// SPDX-License-Identifier: Apache-2.0
//
// Opens a library that Kolo does not link, so that Kolo also starts where it is not installed.
#pragma once

#include <string>

namespace kolo::base {

/// The library of this name: the one that the process has loaded, else the one of a Python package beside kolopy, else
/// the one that the loader finds. `in_packages`: the folder in which pip puts it ("nvidia/nccl/lib"). It is never
/// closed. Null: there is none, and `why` is the loader's reason. Thread-safe.
[[nodiscard]] void* open_shared_library(const std::string& name, const std::string& in_packages, std::string& why);

}  // namespace kolo::base
