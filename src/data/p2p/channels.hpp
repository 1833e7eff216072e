// SPDX-License-Identifier: Apache-2.0
//
// What the protocol (frame.hpp) needs of the channels between this rank and the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include <kolo/error.hpp>

#include "data/p2p/frame.hpp"

namespace kolo::p2p {

/// Messages of up to so many bytes are sent whole: whoever sends one need not wait for its receive.
inline constexpr std::size_t kWholeBytes = 8 << 10;
/// Where longer ones are sent whole, too, because that is faster.
inline constexpr std::size_t kMostWholeBytes = 16 << 10;

/// Who is handed what has come.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  /// `data` is valid during the call.
  virtual void on_frame(int source, const Frame& frame, const std::byte* data, std::size_t bytes) = 0;
  /// Whether frames of that rank are wanted now. If not they stay in the channel, where it holds them by rank.
  [[nodiscard]] virtual bool wants(int /*source*/) const noexcept { return true; }
};

/// Of one rank. Ranks are those of the world, never this one itself. One thread at a time.
class Channels {
 public:
  virtual ~Channels() = default;

  // -- frames
  /// The most data of a frame to that rank.
  [[nodiscard]] virtual std::size_t frame_bytes(int rank) const = 0;
  /// The most data of a message that is sent whole to that rank: kWholeBytes or more, and no more than a frame has.
  [[nodiscard]] virtual std::size_t whole_bytes(int /*rank*/) const { return kWholeBytes; }
  /// Puts a frame into the channel; the data is copied. False: there is no room now. Frames keep their order.
  [[nodiscard]] virtual bool put(int rank, const Frame& frame, const std::byte* data, std::size_t bytes) = 0;
  /// Hands over some of what has come; whether anything had.
  virtual bool take(FrameHandler& handler) = 0;

  // -- the sender's memory, where peers can read it
  /// Lets that rank read the memory of a message of so many bytes, until `end`. 0: the message is to be sent.
  [[nodiscard]] virtual std::uint32_t permit(int rank, std::size_t bytes) = 0;
  /// Takes it back. Once this returns nobody reads there, or what he reads he does not believe.
  virtual void end(std::uint32_t permit) noexcept = 0;
  /// So much is read before other messages have their turn, and other threads.
  [[nodiscard]] virtual std::uint64_t read_bytes() const noexcept = 0;
  enum class Read : std::uint8_t { done, withdrawn, failed };
  /// Reads a piece of a sender's memory, by its permit.
  [[nodiscard]] virtual Read read(int source, std::uint32_t permit, std::byte* to, std::uint64_t from,
                                  std::size_t bytes) = 0;

  // -- for the sentence of a deadline
  /// Notes whom this rank waits for; kNobody: for none.
  static constexpr int kNobody = -1;
  virtual void note_wait(int rank) noexcept = 0;
  /// Whom that rank has noted; kNobody also where this one cannot see it.
  [[nodiscard]] virtual int wait_of(int rank) const noexcept = 0;
};

}  // namespace kolo::p2p
