// SPDX-License-Identifier: Apache-2.0
#include "control/leader.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "base/check.hpp"
#include "control/sentences.hpp"

namespace kolo::control {
namespace {

std::vector<std::vector<std::int32_t>> relay_children(const core::Topology& topology, const std::vector<int>& nodes,
                                                      int fanout) {
  std::vector<std::vector<std::int32_t>> children;
  for (const int rank : topology.nodes[static_cast<std::size_t>(topology.node)]) children.push_back({rank});
  for (const int node : nodes) {
    const std::vector<int> ranks = topology.tree_ranks(node, fanout);
    children.emplace_back(ranks.begin(), ranks.end());
  }
  return children;
}

void append_part(Bytes& frame, const Bytes& part) {
  const auto length = static_cast<std::uint32_t>(part.size());
  const std::size_t at = frame.size();
  frame.resize(at + sizeof length + part.size());
  std::memcpy(frame.data() + at, &length, sizeof length);
  if (!part.empty()) std::memcpy(frame.data() + at + sizeof length, part.data(), part.size());
}

/// Calls `visit` with each part of a frame. Throws Error (transport) when lengths do not add up.
template <class Visit>
void for_each_part(ByteView frame, Visit visit) {
  std::size_t at = 0;
  while (at < frame.size()) {
    std::uint32_t length = 0;
    if (frame.size() - at < sizeof length) throw Error(ErrorCode::transport, "a control frame ends in the middle");
    std::memcpy(&length, frame.data() + at, sizeof length);
    at += sizeof length;
    if (frame.size() - at < length) throw Error(ErrorCode::transport, "a control frame ends in the middle");
    visit(ByteView(frame.data() + at, length));
    at += length;
  }
}

/// Whether sleeping ranks must read this entry now. An entry that is followed by another at once wakes no rank.
bool wakes_ranks(const LogEntry& entry) {
  return !std::holds_alternative<Assigned>(entry) && !std::holds_alternative<PlanVoided>(entry);
}

/// The set of an entry that is one of these.
template <class... Entries>
std::optional<core::SetId> set_of(const LogEntry& entry) {
  std::optional<core::SetId> set;
  const auto look = [&set](const auto* found) {
    if (found != nullptr) set = found->set;
  };
  (look(std::get_if<Entries>(&entry)), ...);
  return set;
}

/// The set whose members alone have to read this entry now; none: all ranks have.
std::optional<core::SetId> readers_of(const LogEntry& entry, const Relay& relay) {
  if (const auto* planned = std::get_if<PlannedBatch>(&entry)) return relay.set_of_plan(planned->plan);
  if (const auto* query = std::get_if<Query>(&entry)) return query->request.set;
  return set_of<BatchAppended, PlanDefined, SetAdded, SequenceAppended, SequenceFailed, SequenceEnded>(entry);
}

bool ends_log(const LogEntry& entry) {
  return std::holds_alternative<Faulted>(entry) || std::holds_alternative<Closed>(entry);
}

std::unique_ptr<Sequencer> make_sequencer(const core::Topology& topology, const base::Settings& settings) {
  if (topology.rank != 0) return nullptr;
  SequencerOptions options;
  options.size = topology.size;
  options.fusion_threshold = settings.fusion_threshold_bytes;
  options.open_batches = static_cast<std::uint64_t>(settings.open_batches);
  options.capacity = static_cast<std::uint32_t>(settings.cache_capacity);
  options.sets_per_rank = static_cast<std::uint32_t>(settings.groups);
  options.plan = settings.plan;
  // Ranks wait this long for an answer. The root waits only half of it for theirs, so that a silent rank does not make
  // the root look silent.
  options.latch_timeout_s = settings.latch_timeout_s / 2;
  options.speaks_through = speakers(topology, static_cast<int>(settings.tree_fanout));
  return std::make_unique<Sequencer>(options);
}

}  // namespace

Leader::Leader(const core::Topology& topology, const base::Settings& settings, Board& board,
               std::function<void(int local_rank)> wake, ControlChannel* control, std::function<void(std::string)> note)
    : topology_(topology), board_(board), wake_rank_(std::move(wake)), control_(control), note_(std::move(note)),
      relay_(topology.size,
             relay_children(topology, control == nullptr ? std::vector<int>{} : control->children(),
                            static_cast<int>(settings.tree_fanout)),
             static_cast<std::size_t>(topology.local_size()), static_cast<std::uint64_t>(settings.open_batches),
             static_cast<std::uint32_t>(settings.cache_capacity)),
      sequencer_(make_sequencer(topology, settings)),
      child_nodes_(control == nullptr ? std::vector<int>{} : control->children()),
      departed_(static_cast<std::size_t>(topology.size)), wake_(static_cast<std::size_t>(topology.local_size())),
      seen_(static_cast<std::size_t>(topology.local_size())),
      patience_(base::from_seconds(settings.latch_timeout_s / 2)) {
  for (Seen& seen : seen_) seen.words.resize(static_cast<std::size_t>(settings.cache_capacity));
  const std::vector<std::int32_t> through = speakers(topology, static_cast<int>(settings.tree_fanout));
  for (std::int32_t rank = topology.rank; rank >= 0; rank = through[static_cast<std::size_t>(rank)])
    above_.push_back(rank);
}

Leader::~Leader() = default;

bool Leader::step(base::Time now) {
  heard_ = false;
  news_ = false;
  bool moved = append_waiting();
  moved |= scan_board();
  relay_.end_pass();
  pass_up(now);
  if (now >= parent_due_) give_up_parent();
  if (sequencer_ && (moved || heard_ || now >= sequencer_->next_deadline())) moved |= sequence(now);
  return moved || heard_;
}

bool Leader::service_sockets() {
  if (control_ == nullptr) return false;
  heard_ = false;
  control_->service(*this);
  return heard_;
}

bool Leader::board_rang() const noexcept {
  const bool quiet_too = hears_quiet();
  for (int rank = 0; rank < board_.ranks(); ++rank) {
    const Seen& seen = seen_[static_cast<std::size_t>(rank)];
    if (board_.doorbell(rank) > seen.publications) return true;
    if (quiet_too && board_.count(rank, core::kCompleted).pack() != seen.words[core::kCompleted]) return true;
  }
  return false;
}

bool Leader::hears_quiet() const noexcept { return !sequencer_ || sequencer_->waits_for_completion(); }

bool Leader::blocked() const noexcept { return !waiting_.empty() || (control_ != nullptr && !control_->flushed()); }

base::Time Leader::next_deadline() const noexcept { return sequencer_ ? sequencer_->next_deadline() : parent_due_; }

/// The own rank last: what it has submitted was published just now, and came after what the others have on the board.
bool Leader::scan_board() {
  bool moved = false;
  for (int rank = board_.ranks() - 1; rank >= 0; --rank) {
    moved |= scan_rank(rank);
    moved |= scan_quiet(rank);
  }
  return moved;
}

/// How many batches of the global set a rank has completed; published without the doorbell.
bool Leader::scan_quiet(int local_rank) {
  Seen& seen = seen_[static_cast<std::size_t>(local_rank)];
  const CountWord word = board_.count(local_rank, core::kCompleted);
  if (word.pack() == seen.words[core::kCompleted]) return false;
  seen.words[core::kCompleted] = word.pack();
  relay_.on_count(static_cast<std::size_t>(local_rank), core::kCompleted, word);
  return true;
}

/// Messages are taken out first and heard last: what a rank published as counts before a message (a `Departed`, say) is
/// on the board when the message is, and must be heard before it.
bool Leader::scan_rank(int local_rank) {
  Seen& seen = seen_[static_cast<std::size_t>(local_rank)];
  if (board_.doorbell(local_rank) <= seen.publications) return false;  // less: a count was found before its bell rang
  std::deque<UpMessage> messages;
  const std::uint64_t rung = take_messages(board_, local_rank, scratch_, messages);
  seen.publications += messages.size();
  scan_counts(local_rank, rung);
  for (UpMessage& message : messages) {
    relay_.on_message(static_cast<std::size_t>(local_rank), std::move(message));
  }
  return true;
}

/// Looks along the column from where the last change was until as many changes are found as the doorbell says, at most
/// once round. A word that changed twice since the last look counts once; so after a whole round everything up to
/// `rung` has been seen.
void Leader::scan_counts(int local_rank, std::uint64_t rung) {
  Seen& seen = seen_[static_cast<std::size_t>(local_rank)];
  const core::TensorId bound = std::max<core::TensorId>(relay_.id_bound(), core::kReservedIds);
  const std::atomic<std::uint64_t>* const words = board_.counts(local_rank);
  for (core::TensorId looked = 0; looked < bound && seen.publications < rung; ++looked) {
    const core::TensorId id = seen.cursor < bound ? seen.cursor : 0;
    seen.cursor = id + 1;
    const std::uint64_t word = words[id].load(std::memory_order_seq_cst);
    if (word == seen.words[id] || id == core::kCompleted) continue;
    seen.words[id] = word;
    ++seen.publications;
    relay_.on_count(static_cast<std::size_t>(local_rank), id, CountWord::unpack(word));
  }
  // A rank ends its step before it submits for the next one. If such a submission has been seen, the end of step must
  // be read before the sequencer decides; otherwise the tensor would count for the old step.
  scan_count(local_rank, core::kSteps);
  seen.publications = std::max(seen.publications, rung);
}

void Leader::scan_count(int local_rank, core::TensorId id) {
  Seen& seen = seen_[static_cast<std::size_t>(local_rank)];
  const CountWord word = board_.count(local_rank, id);
  if (word.pack() == seen.words[id]) return;
  seen.words[id] = word.pack();
  ++seen.publications;
  relay_.on_count(static_cast<std::size_t>(local_rank), id, word);
}

void Leader::pass_up(base::Time now) {
  if (relay_.outbox().empty()) return;
  heard_ = true;
  passing_.clear();
  passing_.swap(relay_.outbox());  // first: what is refused is not passed again, and what is said of that follows
  if (sequencer_) {
    for (const UpMessage& message : passing_) sequencer_->on_message(message, now);
  } else {
    frame_.clear();
    for (const UpMessage& message : passing_) {
      scratch_.clear();
      encode(message, scratch_);
      append_part(frame_, scratch_);
      if (const auto* overdue = std::get_if<Overdue>(&message); overdue && overdue->deadline) probe(*overdue, now);
    }
    if (const auto parent = control_->parent()) send(*parent, view_of(frame_));
  }
}

/// Asks whether the leader above runs, behind this message.
void Leader::probe(const Overdue& overdue, base::Time now) {
  append_part(frame_, {});
  if (parent_due_ != base::Time::max()) return;  // asked already
  parent_due_ = now + patience_;
  parent_asked_ = overdue;
}

void Leader::give_up_parent() {
  parent_due_ = base::Time::max();
  const auto parent = control_->parent();
  if (ended_ || !parent) return;
  const int rank = topology_.leader_of(*parent);
  const Overdue& asked = *parent_asked_;
  const double waited = asked.waited_s + base::to_seconds(patience_);
  const std::string what = subject(words_of(asked.request.set), asked.request);
  const std::string why = unanswered(what, !asked.request.members.empty(), waited, silence_of({rank}));
  latch(Status(ErrorCode::timeout, why), rank);
}

/// Lets the sequencer decide and publishes what it says. Publishing may make the relay speak (it answers queries).
bool Leader::sequence(base::Time now) {
  bool moved = false;
  while (true) {
    sequencer_->decide(now);
    if (sequencer_->outbox().empty()) return moved;
    moved = true;
    const std::vector<LogEntry> entries = std::exchange(sequencer_->outbox(), {});
    publish(entries);
    pass_up(now);
  }
}

void Leader::publish(const std::vector<LogEntry>& entries) {
  Bytes frame;
  for (const LogEntry& entry : entries) {
    if (ended_) break;
    Bytes bytes;
    encode(entry, bytes);
    if (!child_nodes_.empty()) append_part(frame, bytes);
    publish_bytes(entry, std::move(bytes));
  }
  for (const int node : child_nodes_) send(node, view_of(frame));
}

/// One entry into this node: the relay first (see control/relay.hpp), then the ranks.
void Leader::publish_bytes(const LogEntry& entry, Bytes bytes) {
  if (ended_) return;
  relay_.on_log(entry);
  if (const auto* departed = std::get_if<RankDeparted>(&entry))
    departed_[static_cast<std::size_t>(departed->rank)] = true;
  if (ends_log(entry)) {
    ended_ = true;
    if (control_ != nullptr) control_->expect_close();
  }
  if (wakes_ranks(entry)) want_wake(readers_of(entry, relay_));
  if (!waiting_.empty() || !board_.append_log(view_of(bytes))) {
    waiting_.push_back(std::move(bytes));
    append_waiting();
  }
  if (cuts_off(entry)) {  // the leaders below read the same entry, and do the same
    Bytes closed;
    encode(LogEntry(Closed{}), closed);
    publish_bytes(Closed{}, std::move(closed));
  }
}

/// Whether the log ends for this node behind the entry: it has a leader above, or this one, that is gone.
bool Leader::cuts_off(const LogEntry& entry) const {
  const auto* const left = std::get_if<RankDeparted>(&entry);
  return left != nullptr && left->gone && std::find(above_.begin(), above_.end(), left->rank) != above_.end();
}

bool Leader::append_waiting() {
  bool moved = false;
  while (!waiting_.empty()) {
    if (!board_.append_log(view_of(waiting_.front()))) {
      const int laggard = board_.laggard();
      if (board_.asleep(laggard)) wake_rank_(laggard);
      break;
    }
    waiting_.pop_front();
    want_wake(std::nullopt);
    moved = true;
  }
  return moved;
}

void Leader::want_wake(std::optional<core::SetId> set) {
  const std::vector<std::size_t>* const children = set ? relay_.children_of(*set) : nullptr;
  if (children == nullptr) {
    wake_.assign(wake_.size(), true);
    wake_wanted_ = true;
    return;
  }
  for (const std::size_t child : *children) {
    if (child >= wake_.size()) break;  // nodes below this one
    wake_[child] = 1;
    wake_wanted_ = true;
  }
}

void Leader::wake_sleepers() {
  wake_wanted_ = false;
  for (int rank = 1; rank < board_.ranks(); ++rank) {
    if (!std::exchange(wake_[static_cast<std::size_t>(rank)], false) || !board_.asleep(rank)) continue;
    wake_rank_(rank);
    ++counters_.wakeups;
  }
}

void Leader::send(int node, ByteView frame) {
  if (frame.size() == 0) return;
  control_->send(node, frame);
  ++counters_.frames_sent;
  counters_.bytes_sent += frame.size();
}

void Leader::on_frame(int node, ByteView frame) {
  heard_ = news_ = true;
  ++counters_.frames_received;
  if (control_->parent() == node) {
    parent_due_ = base::Time::max();
    for (const int child : child_nodes_) send(child, frame);
    for_each_part(frame, [this](ByteView part) {
      if (part.size() == 0) return;
      publish_bytes(decode_log(part), Bytes(part.begin(), part.end()));
    });
    return;
  }
  const auto place = std::find(child_nodes_.begin(), child_nodes_.end(), node);
  KOLO_CHECK(place != child_nodes_.end()) << "a frame from node " << node << ", which is not below this one";
  const auto child =
      static_cast<std::size_t>(topology_.local_size()) + static_cast<std::size_t>(place - child_nodes_.begin());
  for_each_part(frame, [this, child, node](ByteView part) {
    if (part.size() > 0) return relay_.on_message(child, decode_up(part));
    Bytes answer;
    append_part(answer, {});
    send(node, view_of(answer));
  });
}

void Leader::on_lost(int node, const std::string& reason) {
  heard_ = news_ = true;
  if (ended_) return;
  const int rank = topology_.leader_of(node);
  note_("the link to node " + std::to_string(node) + " (rank " + std::to_string(rank) + ") is lost: " + reason);
  if (control_->parent() == node && departed_[static_cast<std::size_t>(rank)]) {
    publish({Closed{}});  // no loss, but for those who have not left the log ends here
    wake_ranks();
    return;
  }
  if (control_->parent() == node) {
    latch(Status(ErrorCode::rank_lost, rank_lost({rank, ErrorCode::rank_lost, reason})), rank);
    return;
  }
  relay_.on_message(0, RankLost{rank, ErrorCode::rank_lost, reason});
}

void Leader::on_local_death(int local_rank) {
  board_.forget_reader(local_rank);
  if (ended_) return;
  news_ = true;
  scan_rank(local_rank);
  const int rank = topology_.nodes[static_cast<std::size_t>(topology_.node)][static_cast<std::size_t>(local_rank)];
  relay_.on_message(static_cast<std::size_t>(local_rank),
                    RankLost{rank, ErrorCode::rank_lost, "its process has ended"});
}

void Leader::go(base::Time now) {
  scan_board();  // what this rank has said before, its leaving above all
  pass_up(now);
  if (ended_) return;
  relay_.on_message(0, RankLost{topology_.rank, ErrorCode::rank_lost, kStopped});
  pass_up(now);
  if (sequencer_) sequence(now);
  wake_ranks();
}

void Leader::end_below() {
  publish({RankDeparted{topology_.rank, -1, true}});
  wake_ranks();
}

void Leader::latch(const Status& status, std::int32_t rank) {
  if (ended_) return;
  publish({Faulted{status.code(), rank, status.message()}});
  wake_ranks();
}

}  // namespace kolo::control
