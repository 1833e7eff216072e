// SPDX-License-Identifier: Apache-2.0
//
// Names that debuggers, top and /proc show for a thread.
#pragma once

#include <string>
#include <string_view>

namespace kolo::base {

/// Names the calling thread; Linux keeps the first 15 bytes.
void set_thread_name(std::string_view name);
/// The calling thread's name.
std::string thread_name();

}  // namespace kolo::base
