// SPDX-License-Identifier: Apache-2.0
//
// What one rank puts into its channels: its sends, and its answers to others' (frame.hpp). What a channel has no space
// for waits here, in order. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "data/p2p/channels.hpp"
#include "data/p2p/frame.hpp"
#include "data/p2p/message.hpp"
#include "data/p2p/open_messages.hpp"

namespace kolo::p2p {

class Sending {
 public:
  /// What is referred to outlives it.
  Sending(int size, Channels& channels, OpenMessages& open)
      : channels_(channels), open_(open), outgoing_(static_cast<std::size_t>(size)) {}

  // -- sends
  void give_id(Message& send) noexcept { send.id = ++last_id_; }
  [[nodiscard]] static Frame head_of(const Message& send);
  /// A send to another rank begins.
  void start(Message& send);
  /// Sends a short message at once, if its channel has space. False: nothing has been done.
  [[nodiscard]] bool try_send(const Message& send);
  /// More of the data of a send that is wanted is there. Once, until it is in the channel.
  void add_wanted(Message& send);
  /// A send is given up: the receiver is told.
  void withdraw(Message& send, int because);

  // -- answers
  void answer(int rank, const Frame& frame);
  /// Those to that rank that are not in the channel yet; null: there are none.
  [[nodiscard]] const std::deque<Frame>* waiting_answers(int rank) const noexcept;

  // -- what receivers answer
  /// Returns the send whose data is wanted by the host; null: it is no more.
  Message* on_wanted(int source, std::uint64_t id);
  /// The send whose data is wanted by the device: it is not announced any more. Null: it has been given up.
  [[nodiscard]] Message* take_for_device(int source, std::uint64_t id);
  void on_taken(int source, std::uint64_t id);
  void on_refused(int source, const Frame& frame);

  /// Puts into channels what they have space for; whether anything was.
  bool flush();
  [[nodiscard]] bool has_unsent() const noexcept { return !busy_.empty(); }
  [[nodiscard]] bool awaits_answers() const noexcept { return !given_up_.empty(); }
  /// Nothing more goes to that rank.
  void drop(int rank);
  /// Nothing more goes to any. Their messages end elsewhere.
  void close();

 private:
  /// What is to be put into the channel to a rank, in this order of precedence.
  struct Outgoing {
    std::deque<Frame> answers;       ///< frames without data
    std::deque<Message*> beginning;  ///< sends whose first frame is not in the channel, in the order of the calls
    std::deque<Message*> wanted;     ///< sends whose data is wanted, and is there, once each
    bool is_busy = false;            ///< stands in `busy_`
  };

  [[nodiscard]] bool begin(Message& send);
  [[nodiscard]] bool flush(int rank, Outgoing& outgoing, bool& moved);
  [[nodiscard]] bool push_parts(Message& send, bool& moved);
  [[nodiscard]] Message* find_answered(int source, std::uint64_t id);
  void end_permit(Message& send) noexcept;
  Outgoing& outgoing(int rank);
  void mark_busy(int rank, Outgoing& outgoing);

  Channels& channels_;
  OpenMessages& open_;
  std::uint64_t last_id_ = 0;
  std::vector<std::unique_ptr<Outgoing>> outgoing_;        // by rank, of those that this one has sent to
  std::vector<int> busy_;                                  // ranks for which there is something
  std::unordered_map<std::uint64_t, Message*> announced_;  // sends whose receiver speaks next, by id
  std::unordered_map<std::uint64_t, int> given_up_;        // of those by the device: whose answer is still to come
};

}  // namespace kolo::p2p
