// SPDX-License-Identifier: Apache-2.0
//
// Proves that a process knows the job's key without sending the key.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace kolo::base {

using Word = std::array<std::uint8_t, 32>;

/// HMAC-SHA-256 (RFC 2104). An empty key proves nothing, because every process knows it.
[[nodiscard]] Word prove(std::string_view key, std::string_view text) noexcept;

/// Takes the same time wherever the two differ (constant-time comparison).
[[nodiscard]] bool equal_words(const Word& a, const Word& b) noexcept;

/// From the system's random numbers. Throws Error (transport).
[[nodiscard]] Word random_word();

[[nodiscard]] std::string_view bytes_of(const Word& word) noexcept;
[[nodiscard]] std::string hex_of(const Word& word);
/// False, when the text is not what `hex_of` makes.
[[nodiscard]] bool word_from_hex(std::string_view text, Word& word) noexcept;

}  // namespace kolo::base
