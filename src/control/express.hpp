// SPDX-License-Identifier: Apache-2.0
//
// The express: unnamed collectives of one node whose data travels with the readiness, past the log. One store says
// "ready, for this, with these bytes"; one look at the peers says that all are; then every rank takes what it needs
// from all inputs by itself. A layout over shared memory that somebody else maps, and the protocol on it;
// nothing here waits, and nothing here moves data (engine/express_routes.hpp).
//
// Why no order can matter here. The unnamed calls of a set are numbered by each rank's own order of calls, one at a
// time (threads queue for them), and synchronous: a rank has returned from call k before it begins call k + 1. So
// everybody agrees on the order of these calls without a word, and none of them can stand between two entries of the
// log in a way that anybody could see: named operations run beside it, as they run beside each other.
//
// Words. A rank has two *lines*, one for odd and one for even calls. A line's first eight bytes are its *word*:
// the number of the call (16 bits of it) and a *tag* (48 bits), which is a hash of the signature; the tag `kByLog` says
// "not past the log". The rest of the line holds inputs of up to
// 120 bytes: a line is two of the processor's, which fetches both. Longer ones lie in a payload area, also one for odd
// and one for even calls, or stay where they are, and the line says at which address (transport/peer_memory.hpp).
//
// The verdict on call k is a function of the n words of call k, which are written once each:
//
//   together   all words carry the same tag, other than kByLog: the call is done with the inputs beside the words
//   by log     at least two tags differ, or one is kByLog: every rank submits the call to the log, with its whole
//              signature, as if there were no express. So a mismatch gets the log's sentence, the same on all ranks.
//
// Every unnamed call writes its word. One that cannot go this way (too large, another kind) writes kByLog and goes to
// the log at once. A rank does not wait long for words: it *demotes* the call by writing kByLog into the line of a rank
// that has not spoken, and goes to the log, where waits sleep, have deadlines, and find out who is missing. The late
// rank finds its word written and follows. Word k of a line is written by compare-and-swap from what the line
// held before, so exactly one of the two comes first, and whoever reads it reads that one: the verdict is the same for
// everybody. A rank that is dead, has left, or faulted never speaks, so its peers end in the log as well.
//
// After the verdict `together` nothing can be taken back. Where peers read a rank's own memory the call is over for
// that rank only when they have: each rank says beside its lines the last call that it has *finished* reading in. Who
// waits for a dead rank's hears of its death as a fatal error. A rank that must give up this wait, for whatever
// reason, says that it has *withdrawn* before its caller may touch the memory again. A peer that has read looks for
// that afterwards: if it finds it, what it has read may be anything, and its call fails, too. Where ranks are threads
// reading freed memory would crash the reader. There a rank says that it *reads* and looks for a withdrawal then,
// before it reads; and who has withdrawn waits until nobody reads. Both store, then look, sequentially consistent.
//
// Reuse. A rank begins call k when it has ended call k - 1. If that went together, all have begun it; if it went by the
// log, too, for all have submitted it (or there is a fatal error, and nobody begins another call). So a rank that begins
// call k knows that all have begun k - 1, and have ended k - 2: it may write line and payload of call k over those of
// call k - 2.
// The one exception: the log fails a call that a rank which has *left* the job will never make, though others may still
// be in the call before. So from the moment that the log says that a rank has left, the express is closed (the engine's
// business): calls go to the log without a word, and nothing is written over.
//
// Joining. A rank that is absent (messages.hpp) takes part in no call; all that others begin meanwhile goes by the log,
// because it never speaks. Its join takes its turn among its calls, so it has ended its last one. Since a demotion
// waits, the express is closed, as above, from the moment that the log says that a rank has joined. When all have
// joined they go on from the number that the log says. Words of long ago could be taken for those of a call with the
// same 16 bits: so the first call goes by the log on all ranks, and each writes all its words anew before it submits
// that.
//
// The log knows an unnamed call by the same number, so its rounds of unnamed calls have gaps, the same on all ranks.
//
// Time. After a call that may be done in different ways each rank says how long it took, by parity. The rank that chose
// the way reads that in the next call, when all have spoken: then they have said it, and few have ended another such
// call since.
//
// Two signatures with the same 48-bit hash would be taken for equal: one in 2^48 of the mistakes that a program makes.
// Nothing outside the express's own memory and the caller's own buffers is touched even then.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/columns.hpp"
#include "core/signature.hpp"

namespace kolo::control {

/// One local rank's end of it. One caller at a time: whoever makes the unnamed call.
class Express {
 public:
  using Tag = std::uint64_t;
  static constexpr Tag kByLog = 0;
  enum class Verdict : std::uint8_t { undecided, together, by_log };

  /// What must agree, as a tag; never kByLog. `shape` is what the signature's would be.
  static Tag tag_of(core::CollectiveKind kind, DType dtype, const Shape& shape, ReduceOp op = ReduceOp::sum,
                    double prescale = 1, double postscale = 1, int root = 0) noexcept;

  /// `columns`: of the set's ranks, page aligned, of `column_bytes` each; they outlive it. No rank looks at a peer's
  /// before that one has made its end. `capacity`: the longest input that a payload holds; 0 is as good as 120.
  Express(base::Columns columns, std::size_t capacity, int local_rank);
  /// A multiple of the page size.
  [[nodiscard]] static std::size_t column_bytes(std::size_t capacity) noexcept;

  [[nodiscard]] int ranks() const noexcept { return columns_.size(); }
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  /// How much a payload holds.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Begins the next call: now this rank's room and payload may be written. It has ended the one before.
  void begin() noexcept;
  /// Says this rank's word, once it has begun. Afterwards the verdict may be asked for.
  void speak(Tag tag) noexcept;
  /// A hint, once this rank has spoken: the next call's payload may be as long as this.
  void expect(std::size_t payload_bytes) const noexcept;
  /// Begins the next call and says that it goes by the log.
  void say_by_log() noexcept {
    begin();
    speak(kByLog);
  }
  /// Counts a call and says nothing: what remains when the express is closed.
  void pass_over() noexcept { begin(); }
  /// No rank is in a call, and all go on after this one, with a call that all pass over.
  void resume(std::uint64_t call) noexcept;
  /// The number of the call that was begun last: 1, 2, ...
  [[nodiscard]] std::uint64_t call() const noexcept { return call_; }
  /// Looks at the peers' words. Costs one line a peer that has not been seen to speak.
  [[nodiscard]] Verdict look() noexcept;
  /// Makes the call go by the log unless all have spoken meanwhile. Nothing changes when the verdict is known already.
  [[nodiscard]] Verdict demote() noexcept;
  /// Room for a rank's input: kRoom bytes in its line, aligned to 8, and the payload, `capacity()` bytes elsewhere,
  /// aligned to 64. The own ones are written between `begin` and `speak`, the peers' may be read from the verdict
  /// `together` until the next `begin`.
  static constexpr std::size_t kRoom = 120;
  [[nodiscard]] std::byte* room(int local_rank) const noexcept { return line(local_rank, call_).room; }
  [[nodiscard]] std::byte* payload(int local_rank) const noexcept { return payload(local_rank, call_); }
  /// Both payloads of a rank, which lie side by side. From the time when all have spoken to the end of the call they
  /// are the rank's to write if it carries nothing in this one.
  [[nodiscard]] std::byte* payloads(int local_rank) const noexcept { return columns_[local_rank] + kPayloadsAt; }
  [[nodiscard]] std::size_t payloads_bytes() const noexcept { return 2 * payload_bytes_; }
  /// The shorter of the two that holds so much.
  [[nodiscard]] std::byte* place(int local_rank, std::size_t bytes) const noexcept {
    return bytes <= kRoom ? room(local_rank) : payload(local_rank);
  }

  /// How long this rank took for the call, in nanoseconds; and what a rank has said of a call. 0: it has not.
  void note_took(std::uint64_t nanoseconds) noexcept;
  [[nodiscard]] std::uint64_t took(int local_rank, std::uint64_t call) const noexcept;

  /// Memory of each rank's for who does the calls, aligned to a cache line. The own one is zeroed at the begin.
  static constexpr std::size_t kExtraBytes = (1 << 10) + 128;
  [[nodiscard]] std::byte* extra(int local_rank) const noexcept;

  /// This rank has read all that it needs of its peers' memory, in this call and all before.
  void finish() noexcept { counts(local_rank_).finished.store(call_, std::memory_order_release); }
  [[nodiscard]] bool has_finished(int local_rank) const noexcept {
    return counts(local_rank).finished.load(std::memory_order_acquire) >= call_;
  }
  /// This rank's memory may change from now on, though peers may not have read it. For good: it is a fatal error.
  void withdraw() noexcept;
  /// Whether that rank had withdrawn when its memory was read before this call.
  [[nodiscard]] bool has_withdrawn(int local_rank) const noexcept;
  /// Between threads, around what this rank reads of a peer that has not withdrawn.
  void begin_reading() noexcept;
  void end_reading() noexcept;
  [[nodiscard]] bool is_reading(int local_rank) const noexcept;

 private:
  struct Line {
    std::atomic<std::uint64_t> word;
    std::byte room[kRoom];
  };
  struct Counts {
    std::atomic<std::uint64_t> finished;  // the last call of which everything has been read
    std::atomic<bool> withdrawn;
    std::atomic<bool> reading;
    std::atomic<std::uint64_t> took[2];  // by parity: a call, and how long it was
  };
  // From line to line: processors fetch the other half of 128 bytes as well.
  static constexpr std::size_t kStride = 128;
  static constexpr int kWordBits = 48;  // of a word, without the call
  static constexpr std::uint64_t kTagMask = (std::uint64_t{1} << kWordBits) - 1;

  static constexpr std::uint64_t pack(std::uint64_t call, Tag tag) noexcept { return call << kWordBits | tag; }
  static constexpr bool same_call(std::uint64_t a, std::uint64_t b) noexcept {
    return a >> kWordBits == b >> kWordBits;
  }
  [[nodiscard]] Line& line(int local_rank, std::uint64_t call) const noexcept {
    return *reinterpret_cast<Line*>(columns_[local_rank] + call % 2 * kStride);
  }
  [[nodiscard]] std::byte* payload(int local_rank, std::uint64_t call) const noexcept {
    return columns_[local_rank] + kPayloadsAt + call % 2 * payload_bytes_;
  }
  [[nodiscard]] Counts& counts(int local_rank) const noexcept {
    return *reinterpret_cast<Counts*>(columns_[local_rank] + kCountsAt);
  }

  const base::Columns columns_;
  const int local_rank_;
  const std::size_t capacity_;
  // In a column: the lines, the counts, what is extra, then the payloads.
  static constexpr std::size_t kCountsAt = 2 * kStride;
  static constexpr std::size_t kExtraAt = kCountsAt + kStride;
  static constexpr std::size_t kPayloadsAt = kExtraAt + kExtraBytes;
  const std::size_t payload_bytes_;  // from one payload to the other
  std::uint64_t call_ = 0;
  std::array<std::uint64_t, 2> own_line_{};  // what the own lines hold
  int seen_ = 0;                             // local ranks below this have said the same
  Verdict verdict_ = Verdict::undecided;
};

}  // namespace kolo::control
