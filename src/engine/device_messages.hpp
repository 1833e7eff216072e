// SPDX-License-Identifier: Apache-2.0
//
// Messages whose tensors lie on a device. Such a message is an ordinary one in memory of the host, plus a copy: a send
// copies the tensor into that memory, from the call on; a receive copies into the tensor when all data has come.
// Messages of devices and of the CPU therefore match, keep their order, time out and fail alike.
//
//   send     begin, at the call  ->  copied: `Messenger::provide`, piece by piece  ->  the message ends: the operation
//            is done, once nothing of the copy is under way
//   receive  the message ends    ->  begin  ->  copied: the operation is done
//
// The driver's, but for `open`.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "data/device.hpp"
#include "engine/message_operation.hpp"

namespace kolo::engine {

class DeviceMessages {
 public:
  /// Null: there is no device. It outlives this.
  explicit DeviceMessages(data::DeviceCopies* device) noexcept : device_(device) {}

  /// Copies that have begun and are not over. Any thread may ask.
  [[nodiscard]] std::uint64_t open() const noexcept { return open_.load(std::memory_order_acquire); }
  /// Whether some of them have not been moved yet.
  [[nodiscard]] bool has_fresh() const noexcept { return has_fresh_ && !copying_.empty(); }
  void begin(MessageOperation& operation);
  /// The message has ended, however. Whether the operation goes on: until its copy is over, or, unless the device
  /// `may_be_used` (it is being aborted, perhaps, and nothing more is asked of it), until `take`.
  [[nodiscard]] bool keeps(MessageOperation& operation, bool may_be_used);
  /// Moves copies; `news` is called with each operation, as MessageOperation&, whose copy has come further.
  template <class News>
  bool move(News news) {
    if (open() == 0) return false;
    has_fresh_ = false;
    std::vector<data::DeviceCopy*> copies = std::exchange(copies_, {});  // none is left when one of them throws
    copies.clear();
    const bool moved = device_->progress(copies);
    for (data::DeviceCopy* copy : copies) {
      auto& operation = *static_cast<MessageOperation*>(copy->cookie);
      if (copy->over) forget(operation);
      news(operation);
    }
    copies_ = std::move(copies);  // for the memory
    return moved;
  }
  /// The device has been aborted: no copy is open any more. Those whose message has ended, which nobody else ends.
  [[nodiscard]] std::vector<MessageOperation*> take();
  /// Whether a tensor of these begins in this memory.
  [[nodiscard]] bool uses(const std::byte* begin, std::size_t bytes) const noexcept;

 private:
  void forget(MessageOperation& operation);

  data::DeviceCopies* const device_;
  std::vector<MessageOperation*> copying_;
  std::vector<data::DeviceCopy*> copies_;
  bool has_fresh_ = false;
  std::atomic<std::uint64_t> open_{0};
};

}  // namespace kolo::engine
