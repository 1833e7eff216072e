// SPDX-License-Identifier: Apache-2.0
//
// What a fuzzer is made of: a file in this folder defines `run` and `seeds`, and scripts/test fuzz does the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"

namespace kolo::fuzz {

/// Feeds one input to what is tested. It must not crash, and what it must be besides is a KOLO_CHECK. Errors that a
/// parser throws as it should are caught here.
void run(std::string_view input);

/// Inputs to begin with, made of samples: so they follow when a format changes.
[[nodiscard]] std::vector<std::string> seeds();

/// Takes an input apart into what a program does. Where it ends there are zeros.
class Input {
 public:
  explicit Input(std::string_view bytes) noexcept : bytes_(bytes) {}

  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  std::uint8_t byte() noexcept { return static_cast<std::uint8_t>(number(1)); }
  /// Of so many bytes, the least significant first.
  std::uint64_t number(std::size_t bytes) noexcept {
    std::uint64_t value = 0;
    const std::string_view taken = text(bytes);
    for (std::size_t i = 0; i < taken.size(); ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(taken[i])} << (8 * i);
    }
    return value;
  }
  /// At most so many bytes.
  std::string_view text(std::size_t bytes) noexcept {
    const std::string_view taken = bytes_.substr(0, bytes);
    bytes_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() noexcept { return text(bytes_.size()); }

 private:
  std::string_view bytes_;
};

/// Puts an input together, as `Input` takes it apart.
class Output {
 public:
  Output& number(std::uint64_t value, std::size_t bytes = 1) {
    for (std::size_t i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  Output& text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace kolo::fuzz
