// SPDX-License-Identifier: Apache-2.0
#include "engine/express_routes.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "base/round_up.hpp"
#include "engine/express_pieces.hpp"

namespace kolo::engine {

namespace {

using control::Express;
using core::CollectiveKind;

/// More than this, for one peer, can be read about as fast as it can be carried.
constexpr std::size_t kLeastRead = 8 << 10;
/// Likewise where two ranks share a CPU, or each shares its own with others. With more ranks the second meeting costs
/// more than the copy.
constexpr std::size_t kLeastReadByTurns = 16 << 10;
constexpr int kMostInputsRead = 8;
/// A reduce of no more is carried until reading has been clearly faster.
constexpr std::size_t kShortReduce = 32 << 10;
/// Of what is carried and no longer one call in four counts: to time one takes a twentieth of it.
constexpr std::size_t kSeldomNoted = 32 << 10;
constexpr int kNotedBits = 2;

/// Whether all get the same number of rows.
bool is_even(Span<const std::int64_t> splits) {
  return std::adjacent_find(splits.begin(), splits.end(), std::not_equal_to<>()) == splits.end();
}

}  // namespace

ExpressRoutes::ExpressRoutes(Express& express, Readers readers, const ExpressLimits& limits)
    : express_(express), readers_(std::move(readers)), limits_(limits), ranks_(express.ranks()),
      own_(express.local_rank()), joint_reads_(express, readers_.memory.get(), readers_.local_ranks), feeds_(express),
      inputs_(static_cast<std::size_t>(ranks_)), lengths_(static_cast<std::size_t>(ranks_)) {}

// ---------------------------------------------------------------- before all have spoken

bool ExpressRoutes::may_read() const noexcept { return readers_.memory != nullptr && limits_.direct_bytes > 0; }

/// Inputs of more than this for one peer are read, if any are.
std::size_t ExpressRoutes::least_read() const noexcept {
  return std::min(kLeastRead, std::max(limits_.direct_bytes, Express::kRoom));
}

/// The root of a reduce reads all that the others have.
bool ExpressRoutes::reads_inputs() const noexcept { return may_read() && ranks_ <= kMostInputsRead; }

bool ExpressRoutes::suits_direct(std::size_t bytes_for_one_peer) const noexcept {
  return may_read() && bytes_for_one_peer > std::max(limits_.direct_bytes, Express::kRoom);
}

/// Of an exchange of so many bytes, which is carried as a whole or not at all. What is too long for that is read in
/// shorter blocks, too.
bool ExpressRoutes::blocks_suit_direct(std::size_t bytes) const noexcept {
  const std::size_t block = bytes / static_cast<std::size_t>(ranks_);
  return bytes > Express::kRoom && suits_direct(bytes > limits_.carried_bytes ? 4 * block : block);
}

ExpressRoutes::Way ExpressRoutes::way_of(const ExpressCall& call) {
  const std::size_t bytes = call.bytes();
  const bool can_carry = bytes <= limits_.carried_bytes || bytes <= Express::kRoom;
  const Way carried = can_carry ? Way::carried : Way::by_log;
  // Everybody reads every other's whole input: measured to be worth it up to 8 ranks.
  const bool reads_too_much =
      bytes > Express::kRoom && bytes * static_cast<std::size_t>(ranks_) > 8 * limits_.carried_bytes;
  switch (call.kind) {
  case CollectiveKind::allreduce:
    return reads_too_much ? Way::by_log : carried;
  case CollectiveKind::barrier:
  case CollectiveKind::reduce_scatter:
    return carried;
  case CollectiveKind::reduce:
    if (!readers_.cpu_of_its_own || !reads_inputs()) return carried;
    if (carried == Way::by_log) return suits_direct(bytes) ? direct_or_by_log(call, call.root) : Way::by_log;
    return call.root == own_ ? Way::carried : direct_or_carried(call, bytes);
  case CollectiveKind::broadcast:
    if (suits_direct(bytes)) return direct_or_by_log(call, call.root);
    return carried == Way::carried && call.root == own_ ? direct_or_carried(call, bytes) : carried;
  case CollectiveKind::allgather:
    if (suits_direct(bytes)) return direct_or_by_log(call, 0);
    return bytes <= limits_.carried_bytes ? direct_or_carried(call, bytes) : Way::by_log;
  case CollectiveKind::gather:  // the root reads, and writes, all of it
    if (suits_direct(bytes)) return direct_or_by_log(call, call.root);
    if (call.root == own_) return Way::carried;
    return bytes <= limits_.carried_bytes ? direct_or_carried(call, bytes) : Way::by_log;
  case CollectiveKind::scatter:
    return call.root == own_ ? way_to_deal(call) : Way::carried;
  case CollectiveKind::alltoall:
    if (blocks_suit_direct(bytes)) return direct_or_by_log(call, 0);
    return carried == Way::carried ? direct_or_carried(call, bytes / static_cast<std::size_t>(ranks_)) : Way::by_log;
  default:
    return Way::by_log;
  }
}

/// Of a scatter's splits, where they lie in the payload.
std::size_t ExpressRoutes::table_bytes(Span<const std::int64_t> splits) const noexcept {
  return is_even(splits) ? 0 : base::round_up(splits.size() * sizeof(std::int64_t), 64);
}

/// Of a scatter's root, which alone knows how much it sends.
ExpressRoutes::Way ExpressRoutes::way_to_deal(const ExpressCall& call) {
  const std::size_t table = table_bytes(call.splits);
  if (table > express_.capacity()) return Way::by_log;
  if (blocks_suit_direct(call.bytes())) return direct_or_by_log(call, own_);
  if (table + call.bytes() > express_.capacity()) return Way::by_log;
  return direct_or_carried(call, call.bytes() / static_cast<std::size_t>(ranks_));
}

ExpressRoutes::Way ExpressRoutes::direct_or_by_log(const ExpressCall& call, int decider) {
  if (decider != own_ || call.bytes() <= limits_.carried_bytes) return Way::direct;
  return faster_of_direct_and(Way::by_log, call);
}

/// Of what can be carried.
ExpressRoutes::Way ExpressRoutes::direct_or_carried(const ExpressCall& call, std::size_t bytes_for_one_peer) {
  instead_ = Way::carried;
  if (!may_read() || bytes_for_one_peer <= least_read()) return Way::carried;
  if (!readers_.cpu_of_its_own)
    return ranks_ == 2 && bytes_for_one_peer > kLeastReadByTurns ? Way::direct : Way::carried;
  return faster_of_direct_and(Way::carried, call);
}

ExpressRoutes::Way ExpressRoutes::faster_of_direct_and(Way other, const ExpressCall& call) {
  using Choice = base::FasterWay::Way;
  const auto order = static_cast<int>(std::bit_width(call.bytes()));
  const base::MutexLock lock(choosing_);
  const bool is_short_reduce = call.kind == CollectiveKind::reduce && call.bytes() <= kShortReduce;
  const Choice usual = is_short_reduce ? Choice::second : Choice::first;
  base::FasterWay& between = choices_.try_emplace({call.kind, other, order}, usual).first->second;
  const Way way = between.next() == Choice::first ? Way::direct : other;
  instead_ = other;
  decision_ = {express_.call() + 1, &between, other, way, call.bytes(), begun_};  // `prepare` is about to begin it
  if (begun_ == base::Time{} && is_noted(call)) decision_.begun = base::now();
  return way;
}

ExpressRoutes::Decision ExpressRoutes::decision_on(std::uint64_t call) const noexcept {
  return decision_.call == call && decision_.begun != base::Time{} ? decision_ : Decision{};
}

/// Whoever chooses a way may be done long before the others: what its data costs them counts.
void ExpressRoutes::end_call() {
  const Decision decision = decision_on(express_.call());
  if (decision.between != nullptr && decision.other == Way::by_log) return note_end(decision);
  if (begun_ == base::Time{}) return;
  ended_took_ = static_cast<std::uint64_t>(std::chrono::nanoseconds(base::now() - begun_).count());
  express_.note_took(ended_took_);
  ended_ = decision;
}

/// All have spoken in a call after that.
void ExpressRoutes::note_last_cost() {
  if (ended_.between == nullptr) return;
  std::uint64_t most = ended_took_;
  for (int rank = 0; rank < ranks_; ++rank) most = std::max(most, express_.took(rank, ended_.call));
  note_cost(ended_, static_cast<double>(most) / static_cast<double>(ended_.bytes));
  ended_ = {};
}

/// Whether the next call's cost counts: the same on all ranks that know how long it is. Which of the short ones do has
/// no period: a program's loop may have the same one.
bool ExpressRoutes::is_noted(const ExpressCall& call) const noexcept {
  if (call.bytes() > std::min(kSeldomNoted, limits_.carried_bytes)) return true;
  return (express_.call() + 1) * 0x9e3779b97f4a7c15U >> (64 - kNotedBits) == 0;
}

/// Whether it is long enough for a choice. How long gathers and scatters are not all ranks know: there each says its
/// time always, for the one that counts it.
bool ExpressRoutes::is_timed(const ExpressCall& call) const noexcept {
  if (!readers_.cpu_of_its_own) return false;
  switch (call.kind) {
  case CollectiveKind::broadcast:
  case CollectiveKind::reduce:
  case CollectiveKind::alltoall:
    return call.bytes() > least_read() && is_noted(call);
  case CollectiveKind::allgather:
  case CollectiveKind::gather:
    return call.bytes() > least_read();
  case CollectiveKind::scatter:
    return call.root == own_ ? call.bytes() > least_read() : deals_much_;
  default:
    return false;
  }
}

/// A call that was to be read, and went by the log because a rank was late, is a cost of reading: had it been decided
/// otherwise, the log would have been told of it.
void ExpressRoutes::note_end(const Decision& decision) {
  if (decision.between == nullptr) return;
  const std::chrono::duration<double, std::nano> took = base::now() - decision.begun;
  note_cost(decision, took.count() / static_cast<double>(decision.bytes));
}

void ExpressRoutes::note_cost(const Decision& decision, double of_byte) {
  const base::MutexLock lock(choosing_);
  decision.between->note(decision.way == Way::direct ? base::FasterWay::Way::first : base::FasterWay::Way::second,
                         of_byte);
}

/// Whether the peers can read what this rank would offer them.
bool ExpressRoutes::can_offer(const ExpressCall& call) {
  // Who gives nothing, or to itself alone.
  if (call.kind == CollectiveKind::broadcast && call.root != own_) return true;
  if ((call.kind == CollectiveKind::gather || call.kind == CollectiveKind::reduce) && call.root == own_) return true;
  // Asking the system takes as long as reading some KiB, and the same memory comes in every step.
  const Range range{reinterpret_cast<std::uintptr_t>(call.buffer.input), call.bytes()};
  Range& known = known_readable_[range.begin / 4096 % std::size(known_readable_)];
  if (known.begin == range.begin && known.bytes == range.bytes) return true;
  if (!readers_.memory->is_readable(call.buffer.input, call.bytes())) return false;
  known = range;
  return true;
}

Express::Tag ExpressRoutes::prepare(const ExpressCall& call) {
  // Before anybody counts on this rank, for it may throw.
  if (call.kind == CollectiveKind::reduce && (call.root == own_ || ranks_ == 2) && call.bytes() > least_read() &&
      reads_inputs()) {
    const std::size_t piece = std::min(call.bytes(), piece_of_reduce(call, ranks_));
    pieces_.reserve(static_cast<std::size_t>(ranks_) * base::round_up(piece, base::kPageBytes));
  }
  read_or_fed_ = nullptr;
  if (call.kind == CollectiveKind::reduce && call.root == own_ && call.bytes() >= kLeastJointReduce && feeds_.fits()) {
    const bool in_place = call.buffer.input == call.buffer.output;
    const std::pair<int, bool> kind(std::bit_width(call.bytes()), in_place);
    read_or_fed_ = &feed_choices_.try_emplace(kind, base::FasterWay::Way::first).first->second;
  }
  begun_ = is_timed(call) ? base::now() : base::Time{};
  instead_ = Way::by_log;
  way_ = way_of(call);
  if (way_ == Way::direct && !can_offer(call)) {
    if (decision_.call == express_.call() + 1)
      note_cost(decision_, std::numeric_limits<double>::max());  // it is no way
    decision_ = {};
    way_ = instead_;
  }
  express_.begin();
  laid_out_ = 0;
  if (way_ == Way::by_log) return Express::kByLog;
  if (call.kind == CollectiveKind::scatter) {
    if (call.root == own_) deal(call);
  } else if (way_ == Way::direct) {
    offer(call);
  } else {
    carry(call);
  }
  return Express::tag_of(call.kind, call.dtype, call.shape, call.op, call.prescale, call.postscale, call.root);
}

void ExpressRoutes::carry(const ExpressCall& call) {
  if (call.kind == CollectiveKind::allgather || call.kind == CollectiveKind::gather) return carry_contribution(call);
  if (call.kind == CollectiveKind::broadcast && call.root != own_) return;
  if (call.kind == CollectiveKind::reduce && call.root == own_) return;
  const bool may_be_read = call.kind != CollectiveKind::allreduce && call.kind != CollectiveKind::reduce_scatter;
  if (may_be_read && call.bytes() > Express::kRoom) write_offer({nullptr, static_cast<std::int64_t>(call.bytes())});
  std::byte* to = express_.place(own_, call.bytes());
  // What is this rank's own in an exchange nobody else reads.
  Rows own;
  if (call.kind == CollectiveKind::reduce_scatter) own = rows_of(call, own_, ranks_);
  if (call.kind == CollectiveKind::alltoall) {
    const std::size_t block = call.bytes() / static_cast<std::size_t>(ranks_);
    own = {block * static_cast<std::size_t>(own_), block * static_cast<std::size_t>(own_ + 1)};
  }
  lay_out(to, call.buffer.input, own.begin);
  lay_out(to + own.end, call.buffer.input + own.end, call.bytes() - own.end);
}

/// Where the peers read it.
void ExpressRoutes::lay_out(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  to_peers_(to, from, static_cast<std::int64_t>(bytes));
  laid_out_ += bytes;
}

/// Where a contribution to a gather lies that is carried: in its line where it fits.
std::byte* ExpressRoutes::contributed(int rank, std::size_t bytes) const noexcept {
  return bytes <= Express::kRoom - sizeof(Offer) ? express_.room(rank) + sizeof(Offer) : express_.payload(rank);
}

void ExpressRoutes::carry_contribution(const ExpressCall& call) {
  write_offer({nullptr, static_cast<std::int64_t>(call.bytes())});
  if (call.kind == CollectiveKind::gather && call.root == own_) return;
  lay_out(contributed(own_, call.bytes()), call.buffer.input, call.bytes());
}

std::size_t ExpressRoutes::splits_bytes(const Deal& deal) const noexcept {
  return deal.each >= 0 ? 0 : base::round_up(static_cast<std::size_t>(ranks_) * sizeof(std::int64_t), 64);
}

/// Where the rows that a scatter's root carries lie, so many bytes in all: in its line where they fit.
std::byte* ExpressRoutes::dealt(int root, const Deal& deal, std::size_t bytes) const noexcept {
  if (deal.each >= 0 && bytes <= Express::kRoom - sizeof deal) return express_.room(root) + sizeof deal;
  return express_.payload(root) + splits_bytes(deal);
}

void ExpressRoutes::deal(const ExpressCall& call) {
  const Span<const std::int64_t> splits = call.splits;
  const bool even = is_even(splits);
  const Deal deal{way_ == Way::direct ? call.buffer.input : nullptr, even ? splits[0] : -1};
  static_assert(sizeof deal <= Express::kRoom);
  std::memcpy(express_.room(own_), &deal, sizeof deal);
  if (!even) std::memcpy(express_.payload(own_), splits.data(), splits.size() * sizeof(std::int64_t));
  if (way_ != Way::carried) return;
  // The own rows nobody else reads.
  const auto own = static_cast<std::size_t>(own_);
  const auto before = std::accumulate(splits.begin(), splits.begin() + own, std::int64_t{0});
  const std::size_t begin = static_cast<std::size_t>(before) * call.row_bytes();
  const std::size_t end = begin + static_cast<std::size_t>(splits[own]) * call.row_bytes();
  std::byte* to = dealt(own_, deal, call.bytes());
  lay_out(to, call.buffer.input, begin);
  lay_out(to + end, call.buffer.input + end, call.bytes() - end);
}

void ExpressRoutes::offer(const ExpressCall& call) {
  write_offer({call.buffer.input, static_cast<std::int64_t>(call.bytes())});
}

void ExpressRoutes::write_offer(const Offer& offer) noexcept {
  static_assert(sizeof offer <= Express::kRoom);
  std::memcpy(express_.room(own_), &offer, sizeof offer);
}

}  // namespace kolo::engine
