// SPDX-License-Identifier: Apache-2.0
//
// Which message goes to which receive.
//
// A receive names a process set, and a source and a tag, or any. Of the messages that fit it gets the one that came
// first; a message goes to the receive that fits and was posted first. Messages of one source come in the order in
// which they were sent, so those of a pair and tag match in order. Searches are linear: programs rarely have many of
// either kind open, and what matches is mostly the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "data/p2p/frame.hpp"
#include "data/p2p/message.hpp"

namespace kolo::p2p {

/// A message that no receive has asked for yet.
struct Arrival {
  Frame frame;
  int source = 0;
  std::unique_ptr<std::byte[]> data;  ///< of a whole one
  Message* own = nullptr;             ///< the send, where this rank sends to itself and the data lies there

  /// Of memory, about.
  [[nodiscard]] std::uint64_t cost() const noexcept;
};

/// Pure. One thread at a time.
class Matching {
 public:
  /// Messages that no receive has asked for, and the memory that they take.
  struct Kept {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
  };

  /// The first message that fits, which is taken out; else the receive is kept.
  [[nodiscard]] std::optional<Arrival> post(Message& receive);
  /// The first receive that this message fits, which is taken out; null: there is none.
  [[nodiscard]] Message* find(const Frame& frame, int source);
  /// A message for which there was none.
  void keep(Arrival arrival);
  /// Takes a receive out that has not matched; whether it was there.
  bool remove(const Message& receive);
  /// Takes an announced message out that its sender withdraws; empty: it is not there.
  std::optional<Arrival> remove(int source, std::uint64_t id);
  /// Takes out the first message of a process set; empty: there is none.
  [[nodiscard]] std::optional<Arrival> take_of_set(std::uint64_t set);

  /// Receives that have not matched, in the order of the calls.
  [[nodiscard]] const std::vector<Message*>& posted() const noexcept { return posted_; }
  /// Of all ranks; of one.
  [[nodiscard]] const Kept& kept() const noexcept { return kept_; }
  [[nodiscard]] Kept kept_of(int source) const noexcept;
  void clear() noexcept;

 private:
  template <class Which>
  [[nodiscard]] std::optional<Arrival> take_first(Which&& which);

  std::vector<Message*> posted_;
  std::deque<Arrival> arrivals_;
  Kept kept_;
  std::unordered_map<int, Kept> kept_of_;  // by source
};

}  // namespace kolo::p2p
