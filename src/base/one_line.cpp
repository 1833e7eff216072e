// SPDX-License-Identifier: Apache-2.0
#include "base/one_line.hpp"

#include <string_view>

#include "base/quote.hpp"

namespace kolo::base {

std::string one_line(const std::string& text, std::size_t limit) {
  std::string line = on_one_line(std::string_view(text).substr(0, limit));
  if (text.size() > limit) line += "... (" + std::to_string(text.size()) + " bytes)";
  return line;
}

}  // namespace kolo::base
