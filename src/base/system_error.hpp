// SPDX-License-Identifier: Apache-2.0
//
// Failed system calls as Errors.
#pragma once

#include <string>
#include <string_view>

namespace kolo::base {

/// "Connection refused (errno 111)".
std::string errno_text(int error);

/// What the user can do about it, with the limit that was reached: "; the limit is 1024 file descriptors: raise it
/// (ulimit -n)". Empty for most errors.
std::string remedy(int error);

/// The same for a thread or a process that could not be started.
std::string start_remedy(int error);

/// Throws Error(transport): "<what>: <text of the error><remedy>". Pass `errno` right after the failed call.
[[noreturn]] void throw_errno(std::string_view what, int error);

}  // namespace kolo::base
