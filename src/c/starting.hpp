// SPDX-License-Identifier: Apache-2.0
//
// What a start is given in C.
#pragma once

#include <kolo/kolo.h>
#include <kolo/options.hpp>

namespace kolo::c {

/// The defaults for NULL. Throws Error (invalid_argument) for a wrong size, and for flags that are none.
kolo_init_options checked_init_options(const kolo_init_options* given);
/// What C++ knows of them. Throws Error (invalid_argument).
Options options_of_init(const kolo_init_options& from);

}  // namespace kolo::c
