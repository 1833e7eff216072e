// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>
#include <thread>

namespace kolo::base {

/// Throws Error (transport): "<what> cannot be started: <why, and what to do>".
[[nodiscard]] std::thread start_thread(std::string_view what, std::function<void()> body);

}  // namespace kolo::base
