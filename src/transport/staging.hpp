// SPDX-License-Identifier: Apache-2.0
//
// The staging memory of a transport (inter_node.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "base/check.hpp"
#include "base/machine.hpp"

namespace kolo::transport {

/// One thread at a time.
class Staging {
 public:
  [[nodiscard]] std::byte* take(std::size_t bytes) {
    constexpr std::size_t kAlignment = 64;
    const std::size_t rounded = base::round_up(std::max<std::size_t>(bytes, 1), kAlignment);
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
    if (memory == nullptr) throw std::bad_alloc();
    pieces_.emplace_back(memory);
    return memory;
  }
  void give_back(std::byte* memory) noexcept {
    const auto found =
        std::find_if(pieces_.begin(), pieces_.end(), [memory](const auto& piece) { return piece.get() == memory; });
    KOLO_CHECK(found != pieces_.end()) << "memory that is not this transport's";
    pieces_.erase(found);
  }
  /// The transport may still write into it: the memory stays until the process exits.
  void keep() noexcept {
    for (auto& piece : pieces_) static_cast<void>(piece.release());
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };

  std::vector<std::unique_ptr<std::byte, Free>> pieces_;
};

}  // namespace kolo::transport
