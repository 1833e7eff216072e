// SPDX-License-Identifier: Apache-2.0
//
// Turns a forbidden access to emulated memory into a sentence that names the buffer, and then ends the process.
#pragma once

#include <memory>

#include "memory.hpp"

namespace kolo::emulated {

/// Installs the handler of SIGSEGV, once a process; faults elsewhere go to whoever handled them before.
void watch_faults(const std::shared_ptr<Memory>& memory);

}  // namespace kolo::emulated
