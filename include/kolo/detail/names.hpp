// SPDX-License-Identifier: Apache-2.0

/// @file
/// The names of enumerations, as tables in the order of the numbers.
#ifndef KOLO_DETAIL_NAMES_HPP
#define KOLO_DETAIL_NAMES_HPP

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace kolo::detail {

/// "unknown" for a number that has no name: another rank may have sent it.
template <class Enum, std::size_t Count>
constexpr std::string_view name_of(const std::array<std::string_view, Count>& names, Enum value) noexcept {
  const auto number = static_cast<std::size_t>(value);
  return number < Count ? names[number] : "unknown";
}

/// Empty when no value has this name.
template <class Enum, std::size_t Count>
constexpr std::optional<Enum> value_of(const std::array<std::string_view, Count>& names,
                                       std::string_view name) noexcept {
  for (std::size_t i = 0; i < Count; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace kolo::detail

#endif  // KOLO_DETAIL_NAMES_HPP
