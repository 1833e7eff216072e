// SPDX-License-Identifier: Apache-2.0
//
// From a batch to what is done with it on the device, step by step. Pure: no device needed.
//
// A portion packs some tensors (or parts of them) into one buffer, runs a few collectives as one group, and unpacks.
// What is small goes through the buffer, where all that is reduced in the same way is one collective; what is large is
// reduced where it lies, if the backend can ("direct"), because packing it would cost two more passes over memory and
// save one launch; so is, whatever its size, what would be alone in its call. Tensors in an arena are reduced there
// whatever their size, and neighbours by one collective over all of them.
// A batch that is larger than a buffer becomes several portions, which overlap as those of several batches do.
//
// Who scales. A carrier that can (the CPU) does all of it, and so accumulates 16-bit floats in float32 and rounds them
// once. NCCL cannot, and adds 16-bit floats in their own type: the sum of an average could overflow where the average
// does not, so those are NCCL's own averages, which multiply each input by 1/n before they add. All else is scaled by
// the pack and divided and scaled by the unpack, with the arithmetic of the CPU's kernels.
//
// Who casts. Elements that are sent as 16 bits (core::Wire) go through buffers, which hold those: the pack scales and
// rounds, the unpack widens, and what is between knows of 16-bit elements alone. Of their averages by NCCL the pack
// multiplies by 1/n, too, before it rounds.
//
// Who is absent. An absent rank has no tensors: its pack fills buffers with what is neutral there. So where some are
// absent everything goes through buffers, on all ranks; and as NCCL's averages are over all ranks, the pack multiplies
// by 1/n there, too.
//
// The portions are the same on every rank but for addresses and for what a rank packs and unpacks: they follow from the
// batch, the limits, and - where ranks contribute different amounts - from what the ranks have told each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/backend.hpp"
#include "data/cuda/move.hpp"

namespace kolo::cuda {

/// As the CPU's kernels have it: reduce(prescale * x) / divisor * postscale.
struct Scaling {
  double prescale = 1.0;
  double divisor = 1.0;
  double postscale = 1.0;
  [[nodiscard]] bool is_identity() const noexcept { return *this == Scaling(); }
  friend bool operator==(const Scaling&, const Scaling&) = default;
};

/// A part of one tensor.
struct Segment {
  const std::byte* input = nullptr;  ///< null: the pack fills with `neutral`
  std::byte* output = nullptr;
  std::uint64_t neutral = 0;  ///< Chunk::neutral
  std::uint64_t offset = 0;   ///< in the buffer; kNoOffset: where it lies
  std::uint64_t bytes = 0;
  Element element = Element::plain;
  Element in_buffer = Element::plain;  ///< Chunk::in_buffer
  Scaling scaling = {};                ///< what the pack and the unpack do of it
  bool packs = true;
  bool unpacks = true;
  /// How many bytes of the tensor take one in the buffer.
  [[nodiscard]] std::uint64_t narrowing() const noexcept;
  [[nodiscard]] std::uint64_t bytes_in_buffer() const noexcept { return bytes / narrowing(); }
  friend bool operator==(const Segment&, const Segment&) = default;
};

/// One collective of a portion's group.
struct Call {
  enum class Kind : std::uint8_t {
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    all_to_all,
    send,
    receive
  };
  Kind kind = Kind::all_reduce;
  const std::byte* from = nullptr;  ///< null: in the buffer, at `offset`
  std::byte* to = nullptr;          ///< likewise
  std::uint64_t offset = 0;
  std::uint64_t count = 0;  ///< in elements, as NCCL counts for that call
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  Scaling scaling = {};  ///< what the carrier does of it
  int peer = 0;          ///< the root, or the other end
};

struct Portion {
  std::vector<Segment> segments;
  std::vector<Call> calls;
  std::uint64_t buffer_bytes = 0;  ///< how much of the buffer is used
  std::size_t chunks = 0;          ///< of the segments, and of what this rank neither packs nor unpacks but others do
  std::uint64_t moved_bytes = 0;   ///< likewise
  [[nodiscard]] bool packs() const noexcept;
  [[nodiscard]] bool unpacks() const noexcept;
};

struct PortionLimits {
  int rank = 0;
  int size = 1;
  std::uint64_t buffer_bytes = 0;  ///< a multiple of kBufferAlignment, and at least 64 of them a rank
  bool direct = false;             ///< whether collectives can work on callers' tensors, not on buffers alone
  bool carrier_scales = false;     ///< whether collectives scale as they reduce
  bool some_are_absent = false;    ///< data::Job's; then not `direct`
  bool is_absent = false;
  std::uint64_t direct_bytes = 0;
  std::size_t chunks = 4096;  ///< of one portion at most (Portion::chunks)
};

/// What runs of uneven contributions are told: how many bytes rank r sends to rank s, at [r * size + s] (an allgather:
/// to each the same), and where this rank's result goes. Where calls work on callers' tensors, what others send to
/// others does not matter.
struct Uneven {
  std::vector<std::int64_t> bytes;
  std::byte* output = nullptr;
};

/// Gathers portions. One batch's; runs in order.
class PortionPlanner {
 public:
  explicit PortionPlanner(const PortionLimits& limits) : limits_(limits) {}
  /// `uneven`: for collectives whose rows differ by rank (core::CollectiveTraits), else null.
  void add(const data::Run& run, const Uneven* uneven = nullptr);
  /// Whether the run reduces this piece in the arena in which it lies.
  [[nodiscard]] bool is_in_arena(const data::Run& run, const data::Piece& piece) const noexcept;
  /// All portions since the last call.
  [[nodiscard]] std::vector<Portion> take();

  // -- what collectives are made of (collective_portions.cpp)
  [[nodiscard]] const PortionLimits& limits() const noexcept { return limits_; }
  [[nodiscard]] Segment segment_of(const data::Run& run, const data::Piece& piece) const noexcept;
  /// Whether so many bytes are reduced where they lie: what must be changed before it is reduced goes through a buffer.
  /// `is_lone`: they would share their call with nothing.
  [[nodiscard]] bool is_direct(const data::Run& run, std::uint64_t bytes, bool is_lone) const noexcept;
  /// Whether at most one piece of the run is too small to be reduced where it lies for its size, or its place.
  [[nodiscard]] bool has_lone_piece(const data::Run& run) const noexcept;
  /// Reduces a tensor, or a part of one, through buffers: one call with what the run has reduced there just before. For
  /// all ranks, or for the root of a run that has one.
  void reduce_in_buffer(const data::Run& run, Segment part);
  /// Reduces it where it lies. `part.bytes` are those of the output.
  void reduce_direct(const data::Run& run, const Segment& part, Call::Kind kind);
  /// The run's pieces that lie in arenas.
  void reduce_in_arena(const data::Run& run);
  /// Brings a part of a tensor from `root` to all ranks through buffers, so many bytes of it at a time at most.
  void broadcast_in_buffer(Segment part, std::uint64_t most, int root);
  /// Adds a call on callers' tensors, unless it is of nothing.
  void call_direct(const Call& call);

 private:
  [[nodiscard]] Call call_of(const data::Run& run) const noexcept;
  [[nodiscard]] std::uint64_t neutral_of(const data::Run& run) const noexcept;
  [[nodiscard]] bool divides_in_pack(const data::Run& run) const noexcept;
  [[nodiscard]] bool averages_in_nccl(const data::Run& run) const noexcept;
  [[nodiscard]] bool casts(const data::Run& run) const noexcept;
  Portion& portion_with_room(const Segment& part);
  Portion& open_portion();

  const PortionLimits limits_;
  std::vector<Portion> portions_;
  const data::Run* region_of_ = nullptr;  // whose region the open portion's last call is
};

/// Adds the portions of which the run's collective is made on a device: one function a kind (collective_portions.cpp).
/// `uneven`: as PortionPlanner::add has it.
void plan(PortionPlanner& portions, const data::Run& run, const Uneven* uneven);

/// Where a tensor of a device is reduced, or moved, and why, in words, for the log: what `plan` does.
/// "through a fusion buffer, because ...", "where it lies, because ...".
[[nodiscard]] std::string explain_route(const PortionPlanner& portions, const data::Run& run, const data::Piece& piece);

}  // namespace kolo::cuda
