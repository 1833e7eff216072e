// SPDX-License-Identifier: Apache-2.0
//
// XXH64 with seed 0, as https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md defines it: a fast hash of 64
// bits. It finds damage. It does not keep out a person who changes a file and its hash.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo::checkpoint {

[[nodiscard]] std::uint64_t xxh64(const void* data, std::size_t bytes) noexcept;

}  // namespace kolo::checkpoint
