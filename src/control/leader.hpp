// SPDX-License-Identifier: Apache-2.0
//
// The duties of a node's leader, done by its engine's driver beside its own work:
//
//   up    looks at the board of its node and at the frames of the nodes below, merges them (`Relay`), and
//         hands what comes out to the parent node - or, on the root, to the sequencer
//   down  hands each new log entry to its relay, then to the nodes below, then to the node's log, and wakes who sleeps
//
// Frames between leaders carry several messages: a u32 length and the bytes of each. An empty message is a probe: on
// the way up it asks whether the leader above runs, on the way down it answers. A leader asks when it passes on that a
// deadline has passed. If nothing at all comes down within half of KOLO_LATCH_TIMEOUT_S, it ends the log for its node
// and those below with a fatal error that names the leader above. The nodes below therefore name a stopped leader, and
// so do the ranks of its own node, which see that it reads no messages.
//
// A laggard that has not read the log yet holds up the node's ring, not the leader: entries wait here in order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/settings.hpp"
#include "control/board.hpp"
#include "control/codec.hpp"
#include "control/control_channel.hpp"
#include "control/relay.hpp"
#include "control/sequencer.hpp"
#include "core/topology.hpp"

namespace kolo::control {

/// Takes all messages that a rank has posted out of the board, and returns a value of its doorbell: all messages up to
/// that value have been taken, and all counts before these messages are included in it. Because the rank may post
/// meanwhile, the doorbell is read after the last message, and before a look that finds none. (`AnyBoard`: Board.)
template <class AnyBoard>
std::uint64_t take_messages(AnyBoard& board, int local_rank, Bytes& scratch, std::deque<UpMessage>& messages) {
  std::uint64_t rung = 0;
  std::size_t before = 0;
  do {
    before = messages.size();
    rung = board.doorbell(local_rank);
    while (board.receive(local_rank, scratch)) {
      messages.push_back(decode_up(view_of(scratch)));
    }
  } while (messages.size() != before);
  return rung;
}

struct LeaderCounters {
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t wakeups = 0;
};

/// One thread at a time (the engine's driver).
class Leader final : private ControlChannel::Handler {
 public:
  /// `control` is null in a world of one node. `wake` wakes the process of a local rank, `note` takes a record for the
  /// log (debug); both must not throw. Everything referred to outlives the leader.
  Leader(const core::Topology& topology, const base::Settings& settings, Board& board,
         std::function<void(int local_rank)> wake, ControlChannel* control, std::function<void(std::string)> note);
  ~Leader() override;

  /// Does what can be done now; true when anything was heard or said.
  bool step(base::Time now);
  /// Wakes the ranks of this node that sleep and have entries of the log to read at once (a batch of a group is for its
  /// members alone): after `step`, and as late as the driver can, for a rank that has submitted just now is often about
  /// to wait by itself.
  void wake_ranks() {
    if (wake_wanted_) wake_sleepers();
  }
  /// Reads and writes the sockets; called when they are ready.
  bool service_sockets();
  /// Something on the board has not been looked at. Sequentially consistent: ask it after the rank was marked asleep.
  [[nodiscard]] bool board_rang() const noexcept;
  /// Whether completed batches, which ranks publish quietly, are waited for: by the sequencer, or - nobody knows here -
  /// by the one above. Else they are heard whenever the board is next looked at.
  [[nodiscard]] bool hears_quiet() const noexcept;
  /// Something was heard from a socket, or of a death, that `step` has not passed on yet.
  [[nodiscard]] bool has_news() const noexcept { return news_; }
  /// Entries wait for a laggard, or frames for a socket.
  [[nodiscard]] bool blocked() const noexcept;
  /// When `step` is due though nothing was heard.
  [[nodiscard]] base::Time next_deadline() const noexcept;

  /// The process of a rank of this node is gone.
  void on_local_death(int local_rank);
  /// This rank, which has left, stops before the log has ended: says so (messages.hpp, "Leaving"). When the log has
  /// said so, too, it ends for this node and those below. Go on with `step` until then.
  void go(base::Time now);
  /// Rank 0 does not answer: the log ends for this node and those below without that.
  void end_below();
  /// Latches a fault for this node and those below without the sequencer, which cannot be reached or does not answer.
  void latch(const Status& status, std::int32_t rank);
  /// The log has ended (faulted or closed): a peer that goes away from here on is no loss.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] const LeaderCounters& counters() const noexcept { return counters_; }
  /// The text for a set of the log; empty for the world, and for a removed set.
  [[nodiscard]] std::string words_of(core::SetId set) const { return relay_.words_of(set); }

 private:
  void on_frame(int node, ByteView frame) override;
  void on_lost(int node, const std::string& reason) override;

  bool scan_board();
  bool scan_rank(int local_rank);
  void scan_counts(int local_rank, std::uint64_t rung);
  void scan_count(int local_rank, core::TensorId id);
  bool scan_quiet(int local_rank);
  void pass_up(base::Time now);
  void probe(const Overdue& overdue, base::Time now);
  void give_up_parent();
  bool sequence(base::Time now);
  void publish(const std::vector<LogEntry>& entries);
  [[nodiscard]] bool cuts_off(const LogEntry& entry) const;
  void publish_bytes(const LogEntry& entry, Bytes bytes);
  bool append_waiting();
  void want_wake(std::optional<core::SetId> set);
  void wake_sleepers();
  void send(int node, ByteView frame);

  /// How far each rank's column has been looked at.
  struct Seen {
    std::uint64_t publications = 0;    ///< found so far; never more than there were
    core::TensorId cursor = 0;         ///< where the next is likely: ids rise in a step
    std::vector<std::uint64_t> words;  ///< by id
  };

  const core::Topology& topology_;
  Board& board_;
  const std::function<void(int)> wake_rank_;
  ControlChannel* control_;
  const std::function<void(std::string)> note_;
  Relay relay_;
  std::unique_ptr<Sequencer> sequencer_;  ///< on the root
  std::vector<int> child_nodes_;
  std::vector<std::int32_t> above_;            ///< this rank, and those through which it speaks
  std::vector<bool> departed_;                 ///< by rank of the world: the log has said so
  std::vector<char> wake_;                     ///< by local rank: has entries to read at once
  std::vector<Seen> seen_;                     ///< by local rank
  std::deque<Bytes> waiting_;                  ///< encoded entries that the log ring had no space for
  const base::Duration patience_;              ///< for the leader above
  base::Time parent_due_ = base::Time::max();  ///< when it must have said something
  std::optional<Overdue> parent_asked_;        ///< about this
  std::vector<UpMessage> passing_;             ///< on their way up
  Bytes scratch_;
  Bytes frame_;
  LeaderCounters counters_;
  bool heard_ = false;
  bool news_ = false;
  bool wake_wanted_ = false;
  bool ended_ = false;
};

}  // namespace kolo::control
