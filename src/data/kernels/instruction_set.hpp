// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kolo::kernels {

/// The name of the instruction set that the kernels use on this machine, as Highway calls it: "AVX3", "AVX2", "EMU128".
const char* instruction_set() noexcept;

}  // namespace kolo::kernels
