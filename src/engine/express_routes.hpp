// SPDX-License-Identifier: Apache-2.0
//
// What the unnamed calls that pass by the log do with data (control/express.hpp says why they may, and when).
//
// Two ways. Each rank says beside its word which way its data comes:
//
//   carried   the input lies beside the word, a copy. When all have spoken, everybody takes what it needs of it: one
//             meeting. An all-reduce is reduced by everybody from all inputs, a reduce by the root.
//   direct    the input stays where it is, and peers read it there (transport/peer_memory.hpp): one copy instead of
//             two, and a system call for a peer's data instead of a meeting for every few slots. The call ends with a
//             second meeting: nobody returns before its peers have read its memory, unless it gives up and withdraws
//             it; who has read memory that was withdrawn fails. Not for all-reduces: an element of theirs
//             crosses between cores twice, and the system's copies are slower at that than sums written back into
//             slots (2 ranks, 1 MiB: 220 us against 120).
//
// A rank whose memory is read waits. Where much is read it copies a part itself (joint_reads.hpp): the root of a
// broadcast or scatter, the others in a gather. In a reduce of two ranks the one that is not the root reduces a part,
// or copies all of its input for the root (feeds.hpp), as the root asks, whichever has been faster.
//
// Calls that are too long to be carried go by the log, through the slots of the data plane, or are read. Shorter ones
// may be read as well, from some KiB on. Which is faster depends on the machine, the length, and how far its CPUs lie
// from each other, so what has been faster lately is taken (base/faster_way.hpp). A rank that carries its data is done
// long before the others. So of what can be carried the time of the slowest rank counts, as all say after the call.
// Where ranks share CPUs the second meeting costs a switch or two: there calls of up to KOLO_DIRECT_BYTES are carried,
// but for those of two ranks that are longer than 16 KiB for each.
//
// Every rank decides for itself whether its data is carried or read. One rank decides whether a long call goes by the
// log: the root, or rank 0 where there is none. It says kByLog for that. All others begin the call as one that is read,
// offer their memory, and find the decider's word beside their own. There are two exceptions. In a reduce, ranks that
// share CPUs say kByLog, too. In a gather the decider does not know how long the others' contributions are: where its
// own is short it decides nothing, and long ones are read.
//
// What peers will not be able to read (memory of devices, say) goes by the log: each rank tries its own buffers first,
// and remembers some that could be read. (One that has become unreadable since, at the same address and of the same
// length, is an error of the call, and a fault.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <kolo/error.hpp>
#include <kolo/types.hpp>

#include "base/clock.hpp"
#include "base/faster_way.hpp"
#include "base/mutex.hpp"
#include "base/scratch.hpp"
#include "control/express.hpp"
#include "core/signature.hpp"
#include "data/kernels/peer_copy.hpp"
#include "data/kernels/reduce.hpp"
#include "engine/feeds.hpp"
#include "engine/joint_reads.hpp"
#include "engine/operation.hpp"
#include "transport/peer_memory.hpp"

namespace kolo::engine {

/// A peer's process has ended before this rank had read its memory.
class PeerLost final : public Error {
 public:
  PeerLost(int rank, const Status& status) : Error(status), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// An unnamed call, as its caller has checked it.
struct ExpressCall {
  core::CollectiveKind kind = core::CollectiveKind::barrier;
  DType dtype = DType::float32;
  Shape shape;  ///< as the signature has it: of an all-gather the row's
  ReduceOp op = ReduceOp::sum;
  double prescale = 1;
  double postscale = 1;
  int root = 0;
  Buffer buffer;
  /// Scatter: the root's; as many rows for each rank.
  Span<const std::int64_t> splits;
  std::int64_t room_elements = 0;  ///< scatter: of the output
  /// Gathers: the output, given everybody's bytes; scatter: given the rows from everybody. May throw Error.
  std::function<std::byte*(const std::vector<std::int64_t>&)> make_room;

  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(buffer.elements) * size_of(dtype);
  }
  /// Where the shape is a row's.
  [[nodiscard]] std::size_t row_bytes() const noexcept {
    return static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  }
};

/// When which way is taken; the same on all ranks.
struct ExpressLimits {
  std::size_t carried_bytes = 0;  ///< the longest input that is carried
  std::size_t direct_bytes = 0;   ///< inputs may be read where a peer gets more than this; 0: never
  // As data/cpu/tuning.hpp has them, for what is reduced and what is copied on the way.
  std::size_t past_cache_bytes = 0;
  std::size_t copied_past_cache_bytes = 0;
};

/// The means to read the memory of a set's ranks, all of which are of one node.
struct Readers {
  std::shared_ptr<transport::PeerMemory> memory;  ///< null: it cannot be read
  std::vector<int> local_ranks;                   ///< on the node, by rank of the set
  std::vector<int> world_ranks;                   ///< likewise
  bool cpu_of_its_own = false;                    ///< this rank shares its CPU with no other
};

class ExpressRoutes {
 public:
  enum class Way : std::uint8_t { by_log, carried, direct };
  /// Between reading and another way to do a call.
  struct Decision {
    std::uint64_t call = 0;
    base::FasterWay* between = nullptr;  ///< null: there was nothing to decide
    Way other = Way::by_log;
    Way way = Way::by_log;
    std::size_t bytes = 0;
    base::Time begun;  ///< the epoch: what it costs does not count
  };
  /// Waits until `there()`; throws Error when that cannot be hoped for any more.
  using Await = std::function<void(const std::function<bool()>& there)>;

  /// `express` outlives this.
  ExpressRoutes(control::Express& express, Readers readers, const ExpressLimits& limits);

  /// Begins the call, puts what the peers will need beside the word, and returns the tag to be said: kByLog when the
  /// call cannot pass by the log.
  [[nodiscard]] control::Express::Tag prepare(const ExpressCall& call);
  /// How much this has copied for the peers: into the payload, if that is more than a line.
  [[nodiscard]] std::size_t laid_out() const noexcept { return laid_out_; }
  /// Once all have said the same: does the call of `prepare`. Throws what `make_room` and `await` throw, and Error
  /// (transport) when a peer's memory could not be read.
  void run(const ExpressCall& call, const Await& await);
  /// What this rank decided when it prepared its last call, if that has this number.
  [[nodiscard]] Decision decision_on(std::uint64_t call) const noexcept;
  /// The call of `run` has ended well.
  void end_call();
  /// A call has ended well by the log on which that was decided. Any thread, outside the claim too: the next may have
  /// begun.
  void note_end(const Decision& decision);

 private:
  /// Beside the word of a rank whose data peers may read, and of every rank of a gather.
  struct Offer {
    const std::byte* input;  ///< null: carried
    std::int64_t bytes;
  };
  /// Beside the word of a scatter's root.
  struct Deal {
    const std::byte* input;  ///< null: carried
    std::int64_t each;       ///< rows for each rank; -1: the splits lie at the begin of the payload
  };

  [[nodiscard]] Way way_of(const ExpressCall& call);
  [[nodiscard]] Way way_to_deal(const ExpressCall& call);
  [[nodiscard]] Way direct_or_by_log(const ExpressCall& call, int decider);
  [[nodiscard]] Way direct_or_carried(const ExpressCall& call, std::size_t bytes_for_one_peer);
  [[nodiscard]] Way faster_of_direct_and(Way other, const ExpressCall& call);
  void note_cost(const Decision& decision, double of_byte);
  void note_last_cost();
  [[nodiscard]] bool is_noted(const ExpressCall& call) const noexcept;
  [[nodiscard]] bool is_timed(const ExpressCall& call) const noexcept;
  [[nodiscard]] bool may_read() const noexcept;
  [[nodiscard]] bool reads_inputs() const noexcept;
  [[nodiscard]] std::size_t least_read() const noexcept;
  [[nodiscard]] bool suits_direct(std::size_t bytes_for_one_peer) const noexcept;
  [[nodiscard]] bool blocks_suit_direct(std::size_t bytes) const noexcept;
  [[nodiscard]] bool can_offer(const ExpressCall& call);
  [[nodiscard]] std::size_t table_bytes(Span<const std::int64_t> splits) const noexcept;
  void carry(const ExpressCall& call);
  void lay_out(std::byte* to, const std::byte* from, std::size_t bytes);
  [[nodiscard]] std::byte* contributed(int rank, std::size_t bytes) const noexcept;
  void carry_contribution(const ExpressCall& call);
  void offer(const ExpressCall& call);
  void write_offer(const Offer& offer) noexcept;
  [[nodiscard]] Offer offer_of(int rank) const noexcept {
    Offer offer{};
    std::memcpy(&offer, express_.room(rank), sizeof offer);
    return offer;
  }
  /// Where a rank's input lies that is to be read; null: it is carried. Not of gathers, which always have an offer.
  [[nodiscard]] const std::byte* offered_by(int rank, const ExpressCall& call) const noexcept {
    return call.bytes() > control::Express::kRoom ? offer_of(rank).input : nullptr;
  }
  [[nodiscard]] std::size_t splits_bytes(const Deal& deal) const noexcept;
  [[nodiscard]] std::byte* dealt(int root, const Deal& deal, std::size_t bytes) const noexcept;
  void deal(const ExpressCall& call);

  void reduce(const ExpressCall& call);
  void reduce_to_root(const ExpressCall& call, const Await& await);
  void reduce_read_or_fed(const ExpressCall& call, const Await& await);
  void reduce_read(const ExpressCall& call, const Await& await);
  void reduce_fed(const ExpressCall& call, const Await& await);
  [[nodiscard]] bool goes_past_cache(const ExpressCall& call) const noexcept;
  template <class HasRead>
  void reduce_range(const ExpressCall& call, std::size_t first, std::size_t elements, HasRead has_read);
  [[nodiscard]] const std::byte* reduce_for_root(const ExpressCall& call, const std::byte* theirs, std::size_t begin,
                                                 std::size_t bytes);
  void scatter(const ExpressCall& call);
  void broadcast(const ExpressCall& call, const Await& await);
  void gather(const ExpressCall& call, const Await& await);
  bool note_offers();
  void place_contributions(std::byte* output, const ExpressCall& call, const Await* await = nullptr);
  void gather_to_root(const ExpressCall& call, const Await& await);
  void scatter_from_root(const ExpressCall& call, const Await& await);
  void exchange(const ExpressCall& call, const Await& await);
  void read(int rank, std::byte* to, const std::byte* from, std::size_t bytes);
  void read_jointly(int rank, std::byte* to, const std::byte* from, std::size_t bytes, const Await& await);
  [[nodiscard]] JointReads::Read reading_of(int rank);
  void finish_joint(int rank, const JointReads::Read& read_piece, const Await& await);
  void await_or_withdraw(const std::function<bool()>& there, const Await& await);
  void finish(const Await& await);
  void await_finished(int rank, const Await& await);
  template <class Help>
  void await_finished(int rank, const Await& await, Help help);
  void withdraw();
  [[noreturn]] void throw_given_up(int rank) const;
  void check_read() const;
  [[nodiscard]] kernels::Reduction reduction_of(const ExpressCall& call) const noexcept;

  control::Express& express_;
  const Readers readers_;
  const ExpressLimits limits_;
  const int ranks_;
  const int own_;
  Way way_ = Way::by_log;
  Way instead_ = Way::by_log;   // of reading, where peers cannot read this rank's memory
  kernels::PeerCopy to_peers_;  // into payloads
  std::size_t laid_out_ = 0;    // by the last call
  struct Range {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
  };
  Range known_readable_[16];  // of this rank's own memory, by page

  Decision decision_;  // the last one
  /// On a call that all have done, and how long this rank took: noted when all have said how long they did.
  Decision ended_;
  std::uint64_t ended_took_ = 0;
  base::Time begun_{};       // the call; the epoch: it is not timed
  bool deals_much_ = false;  // the last scatter
  base::Mutex choosing_;
  /// By kind, the other way, and order of length: `first` is direct, `second` the other.
  std::map<std::tuple<core::CollectiveKind, Way, int>, base::FasterWay> choices_ KOLO_GUARDED_BY(choosing_);

  /// For reduces of two ranks, by order of length and whether they are in place: `first` reads, `second` is fed.
  std::map<std::pair<int, bool>, base::FasterWay> feed_choices_;
  base::FasterWay* read_or_fed_ = nullptr;  // of the last call; null: it cannot be fed

  JointReads joint_reads_;
  Feeds feeds_;
  const JointReads::DataOf where_it_lies_ = [](const std::byte* from, std::size_t begin, std::size_t /*bytes*/) {
    return from + begin;
  };

  base::Scratch pieces_;  // of a reduce: of inputs that are read, and of what a rank has reduced for the root

  std::vector<const void*> inputs_;    // reduce's arguments, by rank
  std::vector<std::int64_t> lengths_;  // of contributions, or what comes from each rank, by rank
};

}  // namespace kolo::engine
