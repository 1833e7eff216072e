// SPDX-License-Identifier: Apache-2.0
//
// One rank's part in the protocol of frame.hpp: frames and calls in, frames and outcomes out. Pure: time is an
// argument, and channels are an interface. One thread at a time.
//
// Messages belong to the caller, and stay where they are until they are done. Those that are done are handed over once
// by `take_done`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "data/p2p/channels.hpp"
#include "data/p2p/frame.hpp"
#include "data/p2p/matching.hpp"
#include "data/p2p/message.hpp"

namespace kolo::p2p {

/// Of messages that have ended well.
struct MessageCounters {
  std::uint64_t sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t received = 0;
  std::uint64_t bytes_received = 0;
};

/// Memory for messages that no receive has asked for (frame.hpp, "Room").
struct KeptLimits {
  std::uint64_t of_rank = std::uint64_t{64} << 20;  ///< more of a rank is taken only if something of it is waited for
  std::uint64_t of_all = std::uint64_t{1} << 30;    ///< more ends the job
};

class Protocol final : private FrameHandler {
 public:
  /// `channels` outlives it.
  Protocol(int rank, int size, Channels& channels, const KeptLimits& limits = {})
      : rank_(rank), size_(size), channels_(channels), limits_(limits), outgoing_(static_cast<std::size_t>(size)) {}

  // -- calls
  /// Begins a message. It may be done at once. It is done, or has not begun, when this throws for want of memory.
  void start(Message& message);
  /// Sends a short message at once, if it can: it need not stay where it is. False: nothing has been done.
  [[nodiscard]] bool try_send(const Message& send);
  /// So many bytes of a late send's data are there now, as many as before or more. Not where it is done.
  void provide(Message& send, std::uint64_t bytes);
  /// Takes back a receive that has no message yet; whether it had none. It is done then.
  bool cancel(Message& receive);
  /// Ends an open message by this error. Nobody touches its memory any more. One that has not begun is left alone.
  void give_up(Message& message, const Status& status);
  /// Ends all that is open, and all that comes, by this error.
  void close(const Status& status);

  // -- what else is heard
  /// This rank is a member of a set of this serial number now; and: the set is no more, all its members have dropped
  /// it.
  void on_set(std::uint64_t set);
  void on_set_gone(std::uint64_t set);
  /// A rank has left the job, and sends nothing more. What it has sent may come until then; `Time::min()`: all of it is
  /// in the channel.
  void on_left(int rank, base::Time until);

  /// Moves what can be moved; whether anything was.
  bool progress();
  /// Ends what is overdue, and notes a warning of what has waited for long, once of each message.
  void expire(base::Time now);
  [[nodiscard]] base::Time next_due() const noexcept { return next_due_; }
  /// An open message has got a deadline, and a time to warn.
  void note_deadline(const Message& message) noexcept {
    next_due_ = std::min({next_due_, message.deadline, message.warn_at});
  }
  /// Since the last call.
  [[nodiscard]] std::vector<std::string>& warnings() noexcept { return warnings_; }

  /// Those that are done since the last call.
  [[nodiscard]] std::vector<Message*>& done() noexcept { return done_; }
  /// Whether anything is open, or not yet in a channel: then `progress` must be called.
  [[nodiscard]] bool is_busy() const noexcept { return !open_.empty() || !busy_.empty(); }
  /// Whether there is something to move though nothing has come.
  [[nodiscard]] bool moves() const noexcept { return !busy_.empty() || !reading_.empty() || !helping_.empty(); }
  /// Whether frames are not yet in a channel.
  [[nodiscard]] bool has_unsent() const noexcept { return !busy_.empty(); }
  [[nodiscard]] const std::vector<Message*>& open() const noexcept { return open_; }
  [[nodiscard]] const MessageCounters& counters() const noexcept { return counters_; }
  /// Notes in the channels whom the oldest open message waits for.
  void note_wait() noexcept;

 private:
  /// What is to be put into the channel to a rank, in this order of precedence.
  struct Outgoing {
    std::deque<Frame> answers;       ///< frames without data
    std::deque<Message*> beginning;  ///< sends whose first frame is not in the channel, in the order of the calls
    std::deque<Message*> wanted;     ///< sends whose data is wanted, and is there, once each
    bool is_busy = false;            ///< stands in `busy_`
  };
  using Key = std::pair<int, std::uint64_t>;  // source, id

  void on_frame(int source, const Frame& frame, const std::byte* data, std::size_t bytes) override;
  [[nodiscard]] bool wants(int source) const noexcept override;
  void on_whole(int source, const Frame& frame, const std::byte* data, std::size_t bytes);
  void on_announced(int source, const Frame& frame);
  void on_part(int source, const Frame& frame, const std::byte* data, std::size_t bytes);
  void on_withdrawn(int source, std::uint64_t id);
  [[nodiscard]] Message* find_answered(int source, std::uint64_t id);
  void on_wanted(int source, std::uint64_t id);
  void on_helped(int source, std::uint64_t id, Channels::Ticket ticket);
  void on_taken(int source, std::uint64_t id);
  void on_refused(int source, const Frame& frame);
  [[nodiscard]] bool is_gone(std::uint64_t set) const;

  void send_to_self(Message& send);
  void start_receive(Message& receive);
  void keep(Arrival arrival);
  [[nodiscard]] bool fits(Message& receive, int source, const Frame& frame);
  void take_whole(Message& receive, int source, const Frame& frame, const std::byte* data);
  void take_own(Message& receive, Message& send, const Frame& frame);
  void copy_own(Message& receive, Message& send);
  void accept(Message& receive, int source, const Frame& frame);
  void end_unasked(int rank);
  void on_silent(int rank);
  void receive_nothing_from(int rank);
  void await_reason(Message& receive);

  // -- protocol_sending.cpp
  void start_send(Message& send);
  [[nodiscard]] static Frame head_of(const Message& send);
  [[nodiscard]] bool begin(Message& send);
  bool flush();
  [[nodiscard]] bool flush(int rank, Outgoing& outgoing, bool& moved);
  void add_wanted(Message& send);
  [[nodiscard]] bool push_parts(Message& send, bool& moved);
  bool read();
  enum class Reading : std::uint8_t { goes_on, waits, ended };
  [[nodiscard]] Reading read_piece(Message& receive, std::uint64_t& left);
  void begin_reading(Message& receive);
  void end_reading(Message& receive) noexcept;
  [[nodiscard]] Reading fall_back(Message& receive);
  bool help();
  void answer(int rank, FrameKind kind, std::uint64_t id);
  void answer(int rank, const Frame& frame);
  Outgoing& outgoing(int rank);
  void mark_busy(int rank, Outgoing& outgoing);
  void detach(Message& message);
  void end_permit(Message& send) noexcept;
  void end(Message& message, const Status& status = {});
  void count(const Message& message) noexcept;
  void note_wait(int rank) noexcept;
  [[nodiscard]] std::vector<int> cycle() const;

  const int rank_;
  const int size_;
  Channels& channels_;
  const KeptLimits limits_;
  Matching matching_;
  std::uint64_t last_id_ = 0;
  std::vector<Message*> open_;
  std::vector<Message*> done_;
  std::vector<std::unique_ptr<Outgoing>> outgoing_;        // by rank, of those that this one has sent to
  std::vector<int> busy_;                                  // ranks for which there is something
  std::unordered_map<std::uint64_t, Message*> announced_;  // sends whose receiver speaks next, by id
  std::map<Key, Message*> incoming_;                       // receives whose data comes in parts
  std::vector<Message*> reading_;                          // receives that read the sender's memory
  std::vector<Message*> helping_;                          // sends whose receiver reads, and which may write
  std::unordered_set<std::uint64_t> sets_;                 // that this rank is a member of,
  std::uint64_t last_set_ = 0;                             // up to this serial number
  std::map<int, base::Time> left_;                         // until when something may come from these ranks
  std::unordered_set<int> silent_;                         // of those: nothing more comes
  base::Time next_due_ = base::Time::max();
  int noted_ = Channels::kNobody;  // in the channels: whom this rank waits for
  std::vector<std::string> warnings_;
  MessageCounters counters_;
  Status closed_;
};

}  // namespace kolo::p2p
