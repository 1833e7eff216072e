// SPDX-License-Identifier: Apache-2.0
//
// What an unnamed call does with the data once all have spoken: see the essay in express_routes.hpp.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/kernels/float_mode.hpp"
#include "engine/express_pieces.hpp"
#include "engine/express_routes.hpp"

namespace kolo::engine {

namespace {

using control::Express;
using core::CollectiveKind;

void transfer(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) kernels::copy(to, from, static_cast<std::int64_t>(bytes));
}

}  // namespace

void ExpressRoutes::run(const ExpressCall& call, const Await& await) {
  note_last_cost();
  switch (call.kind) {
  case CollectiveKind::allreduce:
    return reduce(call);
  case CollectiveKind::reduce:
    return reduce_to_root(call, await);
  case CollectiveKind::reduce_scatter:
    return scatter(call);
  case CollectiveKind::broadcast:
    return broadcast(call, await);
  case CollectiveKind::allgather:
    return gather(call, await);
  case CollectiveKind::gather:
    return gather_to_root(call, await);
  case CollectiveKind::scatter:
    return scatter_from_root(call, await);
  case CollectiveKind::alltoall:
    return exchange(call, await);
  default:
    return;
  }
}

kernels::Reduction ExpressRoutes::reduction_of(const ExpressCall& call) const noexcept {
  return {call.dtype, call.op, {call.prescale, call.postscale, call.op == ReduceOp::average ? ranks_ : 1}};
}

void ExpressRoutes::reduce(const ExpressCall& call) {
  for (int rank = 0; rank < ranks_; ++rank)
    inputs_[static_cast<std::size_t>(rank)] = rank == own_ ? call.buffer.input : express_.place(rank, call.bytes());
  const kernels::FloatMode float_mode;
  kernels::reduce(reduction_of(call), inputs_.data(), ranks_, call.buffer.output, call.buffer.elements, own_);
}

/// As in a gather the root alone reads, and the others have then finished.
void ExpressRoutes::reduce_to_root(const ExpressCall& call, const Await& await) {
  if (call.root != own_) {
    if (call.bytes() > Express::kRoom) express_.finish();
    if (way_ != Way::direct) return;
    const auto reduced = [&](const std::byte* theirs, std::size_t begin, std::size_t bytes) {
      return reduce_for_root(call, theirs, begin, bytes);
    };
    return await_finished(call.root, await, [&] {
      joint_reads_.help(call.root, reduced);
      if (feeds_.fits()) feeds_.feed(call.buffer.input, call.bytes(), to_peers_);
    });
  }
  bool direct = false;
  for (int rank = 0; rank < ranks_; ++rank) direct = direct || (rank != own_ && offered_by(rank, call) != nullptr);
  if (!direct) return reduce(call);
  read_or_fed_ != nullptr ? reduce_read_or_fed(call, await) : reduce_read(call, await);
  check_read();
}

/// For two ranks. It reads or is fed, whichever has been faster.
void ExpressRoutes::reduce_read_or_fed(const ExpressCall& call, const Await& await) {
  using Choice = base::FasterWay::Way;
  base::FasterWay& between = *read_or_fed_;
  const Choice way = between.next();
  const base::Time begun = base::now();
  way == Choice::first ? reduce_read(call, await) : reduce_fed(call, await);
  const std::chrono::duration<double, std::nano> took = base::now() - begun;
  between.note(way, took.count() / static_cast<double>(call.bytes()));
}

/// Of two ranks the other one reduces pieces, too, unless the output is the input: if it were stopped in a piece this
/// rank could not reduce that once more.
void ExpressRoutes::reduce_read(const ExpressCall& call, const Await& await) {
  std::byte* const output = call.buffer.output;
  const int peer = ranks_ == 2 ? 1 - own_ : own_;
  if (peer != own_ && call.buffer.input != output &&
      joint_reads_.begin(peer, output, call.buffer.input, call.bytes(), kLeastJointReduce,
                         cut_of_reduce(call.bytes()))) {
    const auto reduce_piece = [&](const std::byte* to, const std::byte* /*from*/, std::size_t bytes) {
      const std::size_t size = size_of(call.dtype);
      reduce_range(call, static_cast<std::size_t>(to - output) / size, bytes / size, [] {});
    };
    finish_joint(peer, std::cref(reduce_piece), await);
    express_.finish();
  } else {
    // The others may go on while this rank reduces the last piece.
    reduce_range(call, 0, static_cast<std::size_t>(call.buffer.elements), [this] { express_.finish(); });
  }
}

/// For two ranks. The other one copies its input for this rank.
void ExpressRoutes::reduce_fed(const ExpressCall& call, const Await& await) {
  const int peer = 1 - own_;
  const std::size_t size = size_of(call.dtype);
  const auto reduce_so = goes_past_cache(call) ? kernels::reduce_past_cache : kernels::reduce;
  const auto reduce_piece = [&](std::size_t begin, std::size_t bytes, const std::byte* data) {
    const kernels::FloatMode float_mode;  // not while this rank waits, and runs callbacks
    inputs_[static_cast<std::size_t>(own_)] = call.buffer.input + begin;
    inputs_[static_cast<std::size_t>(peer)] = data;
    reduce_so(reduction_of(call), inputs_.data(), ranks_, call.buffer.output + begin,
              static_cast<std::int64_t>(bytes / size), own_);
  };
  const auto wait = [&](const std::function<bool()>& there) { await_or_withdraw(there, await); };
  const std::size_t done = feeds_.take(call.bytes(), std::cref(reduce_piece), wait) / size;
  reduce_range(call, done, static_cast<std::size_t>(call.buffer.elements) - done, [] {});  // mostly nothing
  express_.finish();
}

bool ExpressRoutes::goes_past_cache(const ExpressCall& call) const noexcept {
  return call.bytes() >= limits_.copied_past_cache_bytes && call.buffer.input != call.buffer.output;
}

/// Of inputs some of which are read; `has_read` is called when all have been.
template <class HasRead>
void ExpressRoutes::reduce_range(const ExpressCall& call, std::size_t first, std::size_t elements, HasRead has_read) {
  const std::size_t size = size_of(call.dtype);
  const std::size_t most = std::min(elements, piece_of_reduce(call, ranks_) / size);
  const std::size_t apart = base::round_up(most * size, base::kPageBytes);
  const auto reduce_so = goes_past_cache(call) ? kernels::reduce_past_cache : kernels::reduce;
  const kernels::FloatMode float_mode;
  for (std::size_t begin = first; begin < first + elements; begin += most) {
    const std::size_t now = std::min(most, first + elements - begin);
    for (int rank = 0; rank < ranks_; ++rank) {
      const void*& input = inputs_[static_cast<std::size_t>(rank)];
      const std::byte* const offered = rank == own_ ? nullptr : offered_by(rank, call);
      if (offered == nullptr) {
        input = (rank == own_ ? call.buffer.input : express_.place(rank, call.bytes())) + begin * size;
      } else {
        std::byte* const piece = pieces_.data() + static_cast<std::size_t>(rank) * apart;
        read(rank, piece, offered + begin * size, now * size);
        input = piece;
      }
    }
    if (begin + now == first + elements) has_read();
    reduce_so(reduction_of(call), inputs_.data(), ranks_, call.buffer.output + begin * size,
              static_cast<std::int64_t>(now), kernels::kNoneIsOwn);
  }
}

/// A piece of the root's input, which begins at `theirs`, reduced with this rank's. Null: the root's cannot be read.
const std::byte* ExpressRoutes::reduce_for_root(const ExpressCall& call, const std::byte* theirs, std::size_t begin,
                                                std::size_t bytes) {
  std::byte* const piece = pieces_.data();
  const auto root = static_cast<std::size_t>(call.root);
  if (!readers_.memory->read(readers_.local_ranks[root], piece, theirs + begin, bytes).ok()) return nullptr;
  inputs_[root] = piece;
  inputs_[static_cast<std::size_t>(own_)] = call.buffer.input + begin;
  const kernels::FloatMode float_mode;
  kernels::reduce(reduction_of(call), inputs_.data(), ranks_, piece,
                  static_cast<std::int64_t>(bytes / size_of(call.dtype)));
  return piece;
}

void ExpressRoutes::scatter(const ExpressCall& call) {
  const Rows own = rows_of(call, own_, ranks_);
  for (int rank = 0; rank < ranks_; ++rank)
    inputs_[static_cast<std::size_t>(rank)] =
        (rank == own_ ? call.buffer.input : express_.place(rank, call.bytes())) + own.begin;
  const kernels::FloatMode float_mode;
  kernels::reduce(reduction_of(call), inputs_.data(), ranks_, call.buffer.output,
                  static_cast<std::int64_t>((own.end - own.begin) / size_of(call.dtype)), own_);
}

void ExpressRoutes::broadcast(const ExpressCall& call, const Await& await) {
  if (call.root == own_) {
    transfer(call.buffer.output, call.buffer.input, call.bytes());
    if (way_ == Way::direct) finish(await);
    return;
  }
  const std::byte* const offered = offered_by(call.root, call);
  if (offered == nullptr) return transfer(call.buffer.output, express_.place(call.root, call.bytes()), call.bytes());
  read_jointly(call.root, call.buffer.output, offered, call.bytes(), await);
  express_.finish();
  check_read();
}

/// Of a gather: how much each rank gives. Whether some of it is read where it lies.
bool ExpressRoutes::note_offers() {
  bool direct = false;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Offer offer = offer_of(rank);
    lengths_[static_cast<std::size_t>(rank)] = offer.bytes;
    direct = direct || offer.input != nullptr;
  }
  return direct;
}

void ExpressRoutes::gather(const ExpressCall& call, const Await& await) {
  const bool direct = note_offers();
  std::byte* output = nullptr;
  try {
    output = call.make_room(lengths_);
  } catch (...) {
    // The others go on, and this rank's memory must stay until they have read it.
    if (direct) finish(await);
    throw;
  }
  place_contributions(output, call);
  if (!direct) return;
  finish(await);
  check_read();
}

/// Everybody's, one after another, once `lengths_` are known. Given `await`, those who wait for this rank help.
void ExpressRoutes::place_contributions(std::byte* output, const ExpressCall& call, const Await* await) {
  std::vector<int> joint;  // ranks whose contribution is being read
  const auto total = std::accumulate(lengths_.begin(), lengths_.end(), std::int64_t{0});
  // Where ranks share CPUs who helps takes this rank's turn: that is worth it for much alone.
  const bool is_helped = readers_.cpu_of_its_own || static_cast<std::size_t>(total) >= JointReads::kLeastOfMany;
  if (await != nullptr && is_helped) {
    std::byte* to = output;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Offer offer = offer_of(rank);
      const auto bytes = static_cast<std::size_t>(offer.bytes);
      if (rank != own_ && offer.input != nullptr &&
          joint_reads_.begin(rank, to, offer.input, bytes, JointReads::kLeastOfOne))
        joint.push_back(rank);
      to += bytes;
    }
  }
  const bool past_cache = static_cast<std::size_t>(total) >= limits_.copied_past_cache_bytes;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Offer offer = offer_of(rank);
    const auto bytes = static_cast<std::size_t>(offer.bytes);
    if (rank == own_) {
      if (output != call.buffer.input)
        (past_cache ? kernels::copy_past_cache : kernels::copy)(output, call.buffer.input, offer.bytes);
    } else if (std::find(joint.begin(), joint.end(), rank) != joint.end()) {
      finish_joint(rank, reading_of(rank), *await);
    } else if (offer.input != nullptr) {
      read(rank, output, offer.input, bytes);
    } else {
      transfer(output, contributed(rank, bytes), bytes);
    }
    output += bytes;
  }
}

/// The root alone reads. The others have then finished, so that who waits for the root in vain names it alone.
void ExpressRoutes::gather_to_root(const ExpressCall& call, const Await& await) {
  if (call.root != own_) {
    express_.finish();
    if (way_ == Way::direct) await_finished(call.root, await);
    return;
  }
  const bool direct = note_offers();
  std::byte* output = nullptr;
  try {
    output = call.make_room(lengths_);
  } catch (...) {
    express_.finish();
    throw;
  }
  try {
    place_contributions(output, call, &await);
  } catch (...) {
    joint_reads_.end();
    throw;
  }
  express_.finish();
  if (direct) check_read();
}

void ExpressRoutes::scatter_from_root(const ExpressCall& call, const Await& await) {
  Deal deal{};
  std::memcpy(&deal, express_.room(call.root), sizeof deal);
  const auto own = static_cast<std::size_t>(own_);
  std::size_t rows = static_cast<std::size_t>(deal.each);
  std::size_t before = rows * own;
  std::size_t all = rows * static_cast<std::size_t>(ranks_);
  if (deal.each < 0) {
    std::memcpy(lengths_.data(), express_.payload(call.root), lengths_.size() * sizeof(std::int64_t));
    rows = static_cast<std::size_t>(lengths_[own]);
    before = static_cast<std::size_t>(std::accumulate(lengths_.begin(), lengths_.begin() + own_, std::int64_t{0}));
    all = static_cast<std::size_t>(std::accumulate(lengths_.begin(), lengths_.end(), std::int64_t{0}));
  }
  std::fill(lengths_.begin(), lengths_.end(), 0);
  lengths_[static_cast<std::size_t>(call.root)] = static_cast<std::int64_t>(rows);
  deals_much_ = all * call.row_bytes() > least_read();
  const std::size_t begin = before * call.row_bytes();
  const std::size_t bytes = rows * call.row_bytes();
  const auto end_reading = [&] {
    if (deal.input == nullptr) return;
    if (call.root == own_) return finish(await);
    express_.finish();
  };
  std::byte* output = nullptr;
  try {
    output = call.make_room(lengths_);
  } catch (...) {
    end_reading();  // the others go on
    throw;
  }
  if (call.root == own_) {
    transfer(output, call.buffer.input + begin, bytes);
  } else if (deal.input != nullptr) {
    read_jointly(call.root, output, deal.input + begin, bytes, await);
  } else {
    transfer(output, dealt(call.root, deal, all * call.row_bytes()) + begin, bytes);
  }
  end_reading();
  if (deal.input != nullptr && call.root != own_) check_read();
}

void ExpressRoutes::exchange(const ExpressCall& call, const Await& await) {
  const std::size_t block = call.bytes() / static_cast<std::size_t>(ranks_);
  const std::size_t mine = block * static_cast<std::size_t>(own_);
  // A block is a part of the output, and the caller's own: it stays in the cache for longer than a whole output.
  const bool past_cache = call.bytes() >= std::max(2 * limits_.past_cache_bytes, limits_.copied_past_cache_bytes);
  (past_cache ? kernels::copy_past_cache : kernels::copy)(call.buffer.output + mine, call.buffer.input + mine,
                                                          static_cast<std::int64_t>(block));
  bool direct = way_ == Way::direct;
  // Everybody begins with the next rank, so that nobody's memory is read by all at once.
  for (int distance = 1; distance < ranks_; ++distance) {
    const int peer = (own_ + distance) % ranks_;
    std::byte* to = call.buffer.output + block * static_cast<std::size_t>(peer);
    if (const std::byte* const offered = offered_by(peer, call)) {
      read(peer, to, offered + mine, block);
      direct = true;
    } else {
      transfer(to, express_.place(peer, call.bytes()) + mine, block);
    }
  }
  if (!direct) return;
  finish(await);
  check_read();
}

void ExpressRoutes::read(int rank, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  const auto place = static_cast<std::size_t>(rank);
  const bool between_threads = !readers_.memory->reads_by_system();
  if (between_threads) {
    express_.begin_reading();
    if (express_.has_withdrawn(rank)) {
      express_.end_reading();
      withdraw();
      throw_given_up(rank);
    }
  }
  const Status status = readers_.memory->read(readers_.local_ranks[place], to, from, bytes);
  if (between_threads) express_.end_reading();
  if (status.ok()) return;
  withdraw();  // this call ends here, and peers may be reading
  if (status.code() == ErrorCode::rank_lost) throw PeerLost(readers_.world_ranks[place], status);
  throw Error(status);
}

/// As `read`, of a rank that waits until this one has read.
void ExpressRoutes::read_jointly(int rank, std::byte* to, const std::byte* from, std::size_t bytes,
                                 const Await& await) {
  if (!joint_reads_.begin(rank, to, from, bytes, JointReads::kLeastOfMany)) return read(rank, to, from, bytes);
  finish_joint(rank, reading_of(rank), await);
}

JointReads::Read ExpressRoutes::reading_of(int rank) {
  return [this, rank](std::byte* to, const std::byte* from, std::size_t bytes) { read(rank, to, from, bytes); };
}

void ExpressRoutes::finish_joint(int rank, const JointReads::Read& read_piece, const Await& await) {
  const auto wait = [&](const std::function<bool()>& there) { await_or_withdraw(there, await); };
  joint_reads_.finish(rank, read_piece, wait);
}

void ExpressRoutes::await_or_withdraw(const std::function<bool()>& there, const Await& await) {
  try {
    await(there);
  } catch (...) {
    withdraw();
    throw;
  }
}

/// The end of a call in which peers read this rank's memory.
void ExpressRoutes::finish(const Await& await) {
  express_.finish();
  for (int rank = 0; rank < ranks_; ++rank) await_finished(rank, await);
}

void ExpressRoutes::await_finished(int rank, const Await& await) {
  await_finished(rank, await, [&] { joint_reads_.help(rank, where_it_lies_); });
}

template <class Help>
void ExpressRoutes::await_finished(int rank, const Await& await, Help help) {
  const auto is_over = [&] {
    if (express_.has_finished(rank)) return true;
    help();
    return express_.has_finished(rank);
  };
  await_or_withdraw(std::cref(is_over), await);  // by reference: what would take memory could fail
}

/// When this returns this rank's caller may do with its memory as it likes.
void ExpressRoutes::withdraw() {
  express_.withdraw();
  if (readers_.memory == nullptr || readers_.memory->reads_by_system()) return;
  for (int rank = 0; rank < ranks_; ++rank) {
    while (express_.is_reading(rank)) std::this_thread::yield();
  }
}

void ExpressRoutes::throw_given_up(int rank) const {
  throw Error(ErrorCode::transport, "rank " + std::to_string(readers_.world_ranks[static_cast<std::size_t>(rank)]) +
                                        " gave up the call before its peers had read its data");
}

/// After peers' memory has been read: that it was still what they had offered.
void ExpressRoutes::check_read() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (express_.has_withdrawn(rank)) throw_given_up(rank);
  }
}

}  // namespace kolo::engine
