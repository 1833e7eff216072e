// SPDX-License-Identifier: Apache-2.0
#include "launch/node_list.hpp"

namespace kolo::launch {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// "01" of "01-03,7", with its zeros.
std::optional<std::string_view> first_number(std::string_view range) {
  std::size_t digits = 0;
  while (digits < range.size() && is_digit(range[digits])) ++digits;
  const bool ends = digits == range.size() || range[digits] == ',' || range[digits] == '-';
  if (digits == 0 || !ends) return std::nullopt;
  return range.substr(0, digits);
}

}  // namespace

std::optional<std::string> first_host(std::string_view list) {
  std::string host;
  while (!list.empty() && list.front() != ',') {
    if (list.front() != '[') {
      host += list.front();
      list.remove_prefix(1);
      continue;
    }
    const std::size_t end = list.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    const auto number = first_number(list.substr(1, end - 1));
    if (!number) return std::nullopt;
    host += *number;
    list.remove_prefix(end + 1);
  }
  if (host.empty() || host.find(']') != std::string::npos) return std::nullopt;
  return host;
}

}  // namespace kolo::launch
