// SPDX-License-Identifier: Apache-2.0
//
// Messages between nodes that belong to chunks: exchange i carries those of the chunks whose number is i modulo the
// number of slots, one chunk after another.
#pragma once

#include <cstddef>
#include <vector>

namespace kolo::data::cpu {

/// One driver. `advance` calls the transport, and throws what that throws.
class Exchanges {
 public:
  virtual ~Exchanges() = default;
  /// Moves an exchange on; true when something moved.
  virtual bool advance(std::size_t exchange) = 0;
  /// What was to come has come; what this rank sends may still be on its way.
  [[nodiscard]] virtual bool ready(std::size_t exchange) const noexcept = 0;
  /// Nothing is open any more: the exchange may be started again.
  [[nodiscard]] virtual bool done(std::size_t exchange) const noexcept = 0;
  /// The ranks of messages that were started and have not completed.
  virtual void add_awaited(std::size_t exchange, std::vector<int>& ranks) const = 0;
};

}  // namespace kolo::data::cpu
