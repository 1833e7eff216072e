// SPDX-License-Identifier: Apache-2.0
//
// Receives of one rank that have a message whose data comes in parts, or is read where it lies. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "data/p2p/channels.hpp"
#include "data/p2p/frame.hpp"
#include "data/p2p/message.hpp"
#include "data/p2p/open_messages.hpp"
#include "data/p2p/sending.hpp"

namespace kolo::p2p {

inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

class Receiving {
 public:
  /// `departed`: ranks that have left the job. What is referred to outlives it.
  Receiving(Channels& channels, OpenMessages& open, Sending& sending, const Departures& departed) noexcept
      : channels_(channels), open_(open), sending_(sending), departed_(departed) {}

  /// The receive has its message, which was announced: asks for the data, or begins to read it.
  void begin(Message& receive, const Frame& frame, Way way);
  /// A part of the data has come.
  void on_part(int source, const Frame& frame, const std::byte* data, std::size_t bytes);
  /// The sender has given up a message.
  void on_withdrawn(int source, const Frame& frame);
  /// The receive is given up.
  void forget(Message& receive);
  /// Ends receives whose data that rank has not been asked for yet, because its channel was full: nobody will ask.
  void end_unasked(int rank);

  [[nodiscard]] bool is_reading() const noexcept { return !reading_.empty(); }
  /// Reads some of what lies with others; whether anything moved.
  bool read();
  /// Nothing more comes. The receives end elsewhere.
  void close();

 private:
  using Key = std::pair<int, std::uint64_t>;  // source, id

  [[nodiscard]] bool read_piece(Message& receive, std::uint64_t& budget);
  void fall_back(Message& receive);
  void await_reason(Message& receive);

  Channels& channels_;
  OpenMessages& open_;
  Sending& sending_;
  const Departures& departed_;
  std::map<Key, Message*> incoming_;  // receives whose data comes in parts
  std::vector<Message*> reading_;     // receives that read the sender's memory
};

}  // namespace kolo::p2p
