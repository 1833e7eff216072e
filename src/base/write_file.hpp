// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kolo::base {

/// Makes a file with this content, or replaces what is in it. Throws Error (transport).
void write_file(const std::string& path, std::string_view content);

}  // namespace kolo::base
