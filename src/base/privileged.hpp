// SPDX-License-Identifier: Apache-2.0
//
// What a program obeys that has other rights than its caller: the caller must not choose the files that it writes.
#pragma once

#include <string>
#include <vector>

#include "base/settings.hpp"

namespace kolo::base {

/// Whether this process has other rights than its caller: set-user-ID, set-group-ID, capabilities (AT_SECURE). Its
/// `process_environment` is `without_files` of the environment then.
bool is_privileged() noexcept;
/// Variables that name files (KOLO_TIMELINE, TMPDIR, ...) count as not set. A KOLO_STORE that is a file throws Error
/// (invalid_setting).
Lookup without_files(Lookup lookup);
/// The warning to log of those of these variables that count as not set; empty: none does.
std::string ignored_variables(const std::vector<std::string>& names);

}  // namespace kolo::base
