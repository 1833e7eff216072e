// SPDX-License-Identifier: Apache-2.0
//
// Tensors of messages between the device and memory of the host.
//
//     caller's stream  ..forward..|event|..                     ..|event|..                    |wait_on|..backward..
//                                   : asked                          : asked                  /
//     to_host                        [piece][piece] ...              :                       /
//     host                            \-> memory of the message, which the CPU sends ..     /
//                                         .. and the CPU of the receiver receives -> [piece][piece] ...    to_device
//
// The memory of a message is not pinned, for to pin it beside a running collective could deadlock. So it goes through a
// few *pieces* of pinned memory, which a rank has from the beginning, and which all its copies share. A copy gets
// pieces only when its caller's stream has come to the call, so it holds them no longer than a copy takes: nothing can
// wait for ever for a piece, or behind another copy in a stream, whatever the callers' streams wait for.
//
// A sender says how much has come (`DeviceCopy::copied`), and the message follows piece by piece.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "data/cuda/cuda_api.hpp"
#include "data/cuda/cuda_backend.hpp"
#include "data/cuda/events.hpp"
#include "data/device.hpp"

namespace kolo::cuda {

/// Of pinned memory, and what is copied through it.
struct Piece {
  PinnedMemory memory;
  Event copied;
  data::DeviceCopy* copy = nullptr;
  std::size_t bytes = 0;
};

/// Of one rank, for all its messages. The device is current where it is made and given back.
struct CopyEquipment {
  static constexpr std::size_t kPieces = 4;
  static constexpr std::size_t kPieceBytes = std::size_t{512} << 10;

  /// Throws Error.
  explicit CopyEquipment(const std::function<void()>& ring);

  LateStream to_host;
  LateStream to_device;
  Bell bell;  ///< of its own: events that may be far away would hold up the batches' bell
  std::array<Piece, kPieces> pieces;
};

class CudaBackend::Copies final : public data::DeviceCopies {
 public:
  explicit Copies(CudaBackend& backend) noexcept : backend_(backend) {}

  void start(data::DeviceCopy& copy) override { fresh_.push_back(&copy); }
  void stop(data::DeviceCopy& copy) override;
  bool progress(std::vector<data::DeviceCopy*>& news) override;

  /// Whether copies are open.
  [[nodiscard]] bool is_busy() const noexcept {
    return !fresh_.empty() || !waiting_.empty() || !to_host_.empty() || !to_device_.empty();
  }
  /// Nobody wants to hear of any of them. What is on the streams is the backend's to wait for.
  void forget() noexcept;

 private:
  bool make_ready(std::vector<data::DeviceCopy*>& news);
  void begin_fresh(const CopyEquipment& with);
  bool collect(std::deque<Piece*>& under_way, std::vector<data::DeviceCopy*>& news);
  bool give(CopyEquipment& with, std::vector<data::DeviceCopy*>& news);
  void give_piece(CopyEquipment& with, data::DeviceCopy& copy, Piece& piece);
  [[nodiscard]] bool is_under_way(const data::DeviceCopy& copy) const noexcept;

  CudaBackend& backend_;
  std::vector<data::DeviceCopy*> fresh_;    // not looked at
  std::vector<data::DeviceCopy*> waiting_;  // for their streams, or for pieces
  std::deque<Piece*> to_host_;              // on the stream of this name, in its order
  std::deque<Piece*> to_device_;            // likewise
};

}  // namespace kolo::cuda
