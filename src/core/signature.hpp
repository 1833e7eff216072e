// SPDX-License-Identifier: Apache-2.0
//
// How ranks identify requests: sets, ids, rounds, and the signature, which is everything in a request that must agree
// across ranks. Plain values, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/container/small_vector.hpp>

#include <kolo/types.hpp>

#include "core/collectives.hpp"
#include "core/element_types.hpp"

namespace kolo::core {

/// A process set; 0 is the world's. The log numbers sets, so every rank uses the same number.
using SetId = std::uint32_t;
inline constexpr SetId kGlobalSet = 0;
/// A tensor's (or a group's) number, assigned by the log.
using TensorId = std::uint32_t;
inline constexpr TensorId kNoTensor = ~TensorId{0};
/// How often a name has been submitted by one rank, this time included: 1, 2, ...
using Round = std::uint64_t;

/// A set's reserved ids are `base + ...`. Their counts travel like those of names. The world's are the first ids. Those
/// of another set are a *row* beyond the ids of tensors, so that sets take no ids from names.
enum ReservedId : TensorId {
  kCompleted = 0,  ///< batches of this set that the rank has completed
  kSteps = 1,      ///< calls of end_step
  kDropped = 2,    ///< 1: the rank has dropped the set. The world is never dropped
  kReservedIds = 3,
};
inline constexpr TensorId kFirstRow = TensorId{1} << 20;
/// How many sets may exist at once.
inline constexpr TensorId kMostSets = 16384;
inline constexpr TensorId kEndOfRows = kFirstRow + kMostSets * kReservedIds;
constexpr bool is_row(TensorId base) noexcept {
  return base >= kFirstRow && base < kEndOfRows && (base - kFirstRow) % kReservedIds == 0;
}
/// Whether an id of a row counts completed batches.
constexpr bool counts_completed(TensorId id) noexcept {
  return id >= kFirstRow && (id - kFirstRow) % kReservedIds == kCompleted;
}

struct TensorSignature {
  DType dtype = DType::float32;
  Shape shape;  ///< if the first dimension may differ by rank (`rows_differ`), it is left out
  /// The tensor's place in an arena of the device (device_place.hpp); 0: elsewhere. A tensor at the same place on all
  /// ranks is reduced in place. All ranks must do that alike, so the place is part of the signature.
  std::uint64_t place = 0;
  friend bool operator==(const TensorSignature& a, const TensorSignature& b) noexcept {
    return a.dtype == b.dtype && a.shape == b.shape && a.place == b.place;
  }
};

/// One request's signature. A grouped call is one request with several tensors: it becomes ready and runs as a whole,
/// and costs one count, whatever the number of tensors.
struct Signature {
  CollectiveKind kind = CollectiveKind::allreduce;
  ReduceOp op = ReduceOp::sum;
  DeviceKind device = DeviceKind::cpu;
  std::int32_t root = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  Wire wire = Wire::own;  ///< the type as which wider floats are sent
  boost::container::small_vector<TensorSignature, 1> tensors;
  /// For a grouped call: a hash of its members' names in their order, which ranks compare; else 0.
  std::uint64_t members = 0;
  /// The names, for the sentence about ranks that disagree. Not compared, and not in the log.
  std::vector<std::string> names;
  std::vector<std::int32_t> ranks;
  std::int32_t priority = 0;  ///< the highest priority of the ready requests runs first (control/sequencer/batches.hpp)

  /// Payload bytes of all tensors (0 for a barrier; one row where the first dimension may differ by rank).
  [[nodiscard]] std::int64_t bytes() const noexcept;
  friend bool operator==(const Signature& a, const Signature& b) noexcept;
  friend bool operator!=(const Signature& a, const Signature& b) noexcept { return !(a == b); }
};

/// "allreduce of float32 [3, 4], op sum": for messages.
std::string describe(const Signature& signature);
/// The aspects in which two signatures may differ, in the order of the check: if ranks disagree about the kind, the
/// error does not mention shapes.
enum class Aspect : std::uint8_t {
  kind,
  op,
  root,
  prescale,
  postscale,
  wire,
  device,
  tensor_count,
  member,
  dtype,
  shape,
  place,
  ranks,
  priority,
};
struct Difference {
  Aspect aspect = Aspect::kind;
  std::size_t tensor = 0;  ///< for member, dtype, shape and place: which tensor of a group
  bool grouped = false;    ///< whether there are several
  friend bool operator<(const Difference& a, const Difference& b) noexcept {
    return a.aspect != b.aspect ? a.aspect < b.aspect : a.tensor < b.tensor;
  }
};
/// The first difference in the order of `Aspect`; none when the signatures are equal.
std::optional<Difference> first_difference(const Signature& a, const Signature& b);
/// "shape", or "shape of tensor 2" in a group (numbered from 0), "the name of tensor 2".
std::string describe(const Difference& difference);
/// The value of that aspect in one signature: "[3, 4]", "float32", "average". "none" when it has no such tensor.
std::string describe_value(const Signature& signature, const Difference& difference);

/// "rank 3", "ranks 0 and 2-5 and 9": ascending numbers with runs of three or more closed up. "no rank" for none.
std::string describe_ranks(const std::vector<std::int32_t>& ascending);

}  // namespace kolo::core
