// SPDX-License-Identifier: Apache-2.0
//
// The express: short unnamed blocking calls of one node, without the log. A rank stores one word, with its input beside
// it, which says "ready for this". When all words are there, each rank takes what it needs from all inputs by itself
// (engine/express_data.hpp). This file is the protocol on memory that somebody else shares. Nothing here waits.
//
// Why no order can matter. The unnamed blocking calls of a set are numbered by each rank in its own order, one at a
// time (threads queue for them). A rank returns from call k before it begins call k + 1. So all ranks agree on the
// order of these calls without a word, and none of them can stand between two entries of the log in a way that anybody
// could see: named operations run beside it, as they run beside each other.
//
// Words. A rank has two *lines*, for odd and for even calls. A line's first eight bytes are its *word*: the number of
// the call (16 bits of it) and a *tag* (48 bits), a hash of the signature. The tag `kByLog` says "use the log". The
// rest of the line holds inputs of up to 120 bytes: a line is two of the processor's, which fetches both. Longer inputs
// lie in a payload, of which there are two as well. Words are written by compare-and-swap, once in each call.
//
// The verdict on a call is a function of the words of all ranks, so it is the same everywhere:
//
//   together   all have the same tag, other than kByLog: the call is done with the inputs beside the words
//   by log     two differ, or one is kByLog: every rank submits the call to the log, with its whole signature, as if
//              there were no express. So all ranks get the log's sentence about a mismatch.
//
// A call that cannot go this way (too long, another kind) is begun with kByLog, and goes to the log at once. A rank
// does not wait long for words: it *demotes* the call. That writes kByLog into the lines of ranks that have not spoken.
// They find it when they come, and follow. In the log waits sleep, have deadlines, and find out who is missing. A rank
// that is dead, has left, or has failed never speaks, so its peers end in the log as well.
//
// Reuse. A rank begins call k when it has ended call k - 1. If that went together, all have begun it; if it went by the
// log, too, for all have submitted it (or there is a fatal error, and nobody begins another call). So a rank that
// begins call k knows that all have begun k - 1, and have ended k - 2: it may write line and payload of call k over
// those of call k - 2. There is one exception. The log fails a call that a rank which has *left* the job will never
// make, though others may still be in the call before. So the express is closed (by the engine) from the moment that
// the log says that a rank has left: calls go to the log without a word, and nothing is written over.
//
// Joining. A rank that is absent (messages.hpp) makes no calls and never speaks. Since a demotion waits, the express is
// closed from the moment that the log says that a rank has joined. When all have joined, they go on from the number
// that the log says. A word of long ago could have the same 16 bits as a later call. So the first call goes by the log
// on all ranks, and each writes all its words anew before it submits that call.
//
// The log knows an unnamed call by the same number, so its rounds of unnamed calls have gaps, the same on all ranks.
//
// Two signatures with the same hash would be taken for equal: one in 2^48 of the mistakes that a program makes. Even
// then nothing but the express's own memory and the caller's own buffers is touched.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/columns.hpp"
#include "core/signature.hpp"

namespace kolo::control {

/// One rank's end of it. One thread at a time: whichever makes the unnamed call.
class Express {
 public:
  using Tag = std::uint64_t;
  static constexpr Tag kByLog = 0;
  enum class Verdict : std::uint8_t { undecided, together, by_log };

  /// What must agree, as a tag; never kByLog. `shape` is what the signature's would be.
  static Tag tag_of(core::CollectiveKind kind, DType dtype, const Shape& shape, ReduceOp op = ReduceOp::sum,
                    double prescale = 1, double postscale = 1, int root = 0) noexcept;

  /// `columns`: of the set's ranks, page aligned, of `column_bytes` each; they outlive it. No rank looks at a peer's
  /// before that one has made its end. `capacity`: the longest input that a payload holds.
  Express(base::Columns columns, std::size_t capacity, int local_rank);
  /// A multiple of the page size.
  [[nodiscard]] static std::size_t column_bytes(std::size_t capacity) noexcept;

  [[nodiscard]] int ranks() const noexcept { return columns_.size(); }
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// The number of the call that was begun last: 1, 2, ...
  [[nodiscard]] std::uint64_t call() const noexcept { return call_; }

  /// Begins the next call: now this rank's room and payload may be written. It has ended the one before.
  void begin() noexcept;
  /// Says this rank's word, once it has begun. Afterwards the verdict may be asked for.
  void speak(Tag tag) noexcept;
  /// A hint, once this rank has spoken: the next call's input may be as long as this.
  void expect(std::size_t bytes) const noexcept;
  /// Begins the next call and says that it goes by the log.
  void say_by_log() noexcept {
    begin();
    speak(kByLog);
  }
  /// Counts a call and says nothing: what remains when the express is closed.
  void pass_over() noexcept { begin(); }
  /// No rank is in a call, and all go on after this one, with a call that all pass over.
  void resume(std::uint64_t call) noexcept;

  /// Looks at the peers' words. Costs one line for each peer that has not been seen to speak.
  [[nodiscard]] Verdict look() noexcept;
  /// Decides: makes the call go by the log unless it is decided already.
  [[nodiscard]] Verdict demote() noexcept;

  /// Places for a rank's input: kRoom bytes in its line, aligned to 8, and `capacity()` bytes elsewhere, aligned to 64.
  /// The own ones are written between `begin` and `speak`; the peers' are read between the verdict `together` and the
  /// next `begin`.
  static constexpr std::size_t kRoom = 120;
  [[nodiscard]] std::byte* room(int local_rank) const noexcept { return line(local_rank, call_).room; }
  [[nodiscard]] std::byte* payload(int local_rank) const noexcept { return payload(local_rank, call_); }

 private:
  struct Line {
    std::atomic<std::uint64_t> word;
    std::byte room[kRoom];
  };
  // From line to line: processors fetch the other half of 128 bytes as well.
  static constexpr std::size_t kStride = 128;
  static constexpr int kTagBits = 48;
  static constexpr std::uint64_t kTagMask = (std::uint64_t{1} << kTagBits) - 1;

  static constexpr std::uint64_t pack(std::uint64_t call, Tag tag) noexcept { return call << kTagBits | tag; }
  static constexpr bool same_call(std::uint64_t a, std::uint64_t b) noexcept { return a >> kTagBits == b >> kTagBits; }
  [[nodiscard]] Line& line(int local_rank, std::uint64_t call) const noexcept {
    return *reinterpret_cast<Line*>(columns_[local_rank] + call % 2 * kStride);
  }
  [[nodiscard]] std::byte* payload(int local_rank, std::uint64_t call) const noexcept {
    return columns_[local_rank] + 2 * kStride + call % 2 * payload_bytes_;  // behind the lines
  }

  const base::Columns columns_;
  const int local_rank_;
  const std::size_t capacity_;
  const std::size_t payload_bytes_;  // from one payload to the other
  std::uint64_t call_ = 0;
  std::array<std::uint64_t, 2> own_words_{};  // what the own lines hold
  int seen_ = 0;                              // local ranks below this have said the same as this rank
  Verdict verdict_ = Verdict::undecided;
};

}  // namespace kolo::control
