// SPDX-License-Identifier: Apache-2.0
//
// Failed system calls as Errors.
#pragma once

#include <string>
#include <string_view>

namespace kolo::base {

/// "Connection refused (errno 111)".
std::string errno_text(int error);

/// Throws Error(transport): "<what>: <text of the error>". Give `errno` where it was set; nothing may come between.
[[noreturn]] void throw_errno(std::string_view what, int error);

}  // namespace kolo::base
