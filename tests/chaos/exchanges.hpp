// SPDX-License-Identifier: Apache-2.0
//
// Messages between the ranks of a job of chaos: rounds of random patterns, in which each rank needs others.
#pragma once

#include <cstdint>
#include <functional>

namespace kolo::chaos {

/// Of the current context. All ranks make the same rounds. `event` is called between a rank's calls, also while
/// messages are in flight. Throws Error where one fails, std::runtime_error where a wrong value comes.
void exchange_messages(std::uint64_t seed, const std::function<void()>& event);

}  // namespace kolo::chaos
