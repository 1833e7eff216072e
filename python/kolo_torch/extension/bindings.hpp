// SPDX-License-Identifier: Apache-2.0
//
// What kolo_torch._C has that is not in bindings.cpp.
#pragma once

#include <pybind11/pybind11.h>

namespace kolo::c10d {

/// The function `reduce_in_arena`, and REDUCES_IN_ARENA, whether it does. CMake chooses between two of these:
/// reduce_in_arena.cpp, and, where the headers of DistributedDataParallel are not all there, no_reduce_in_arena.cpp,
/// whose function says so.
void bind_reduce_in_arena(pybind11::module_& module);

}  // namespace kolo::c10d
