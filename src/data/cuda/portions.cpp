// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/portions.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.hpp"
#include "base/machine.hpp"
#include "core/collectives.hpp"
#include "core/device_place.hpp"
#include "data/neutral.hpp"

namespace kolo::cuda {
namespace {

std::uint64_t rounded(std::uint64_t bytes) noexcept { return base::round_up(bytes, kBufferAlignment); }
std::size_t chunks_in(std::uint64_t bytes) noexcept { return (bytes + kChunkBytes - 1) / kChunkBytes; }

/// By DType.
constexpr std::array<Element, kDTypeCount> kElements{
    Element::boolean,  Element::plain,   Element::plain,  Element::plain, Element::plain,
    Element::plain,    Element::plain,   Element::plain,  Element::plain, Element::float16,
    Element::bfloat16, Element::float32, Element::float64};
Element element_of(DType dtype) noexcept { return kElements[static_cast<std::size_t>(dtype)]; }

DType type_of(core::Wire wire) noexcept { return *core::traits_of(wire).type; }

/// Booleans are bytes of 0 and 1: a sum of them is "or", and an "exclusive or" is that of their bits.
DType wire_type(DType dtype) noexcept { return dtype == DType::boolean ? DType::uint8 : dtype; }
ReduceOp wire_op(DType dtype, ReduceOp op) noexcept {
  if (dtype != DType::boolean || op == ReduceOp::bit_xor) return op;
  return op == ReduceOp::sum || op == ReduceOp::max || op == ReduceOp::bit_or ? ReduceOp::max : ReduceOp::min;
}

Scaling scaling_of(const data::Run& run) noexcept {
  return {run.prescale, static_cast<double>(run.divisor), run.postscale};
}

bool has_16_bits(DType dtype) noexcept { return dtype == DType::float16 || dtype == DType::bfloat16; }

/// The first `bytes` of it; the rest stays.
Segment cut(Segment& rest, std::uint64_t bytes) noexcept {
  Segment front = rest;
  front.bytes = bytes;
  rest.bytes -= bytes;
  if (rest.input != nullptr) rest.input += bytes;
  if (rest.output != nullptr) rest.output += bytes;
  return front;
}

}  // namespace

std::uint64_t Segment::narrowing() const noexcept {
  if (in_buffer == element) return 1;
  return element == Element::float64 ? 4 : 2;
}

bool Portion::packs() const noexcept {
  return std::any_of(segments.begin(), segments.end(), [](const Segment& segment) { return segment.packs; });
}
bool Portion::unpacks() const noexcept {
  return std::any_of(segments.begin(), segments.end(), [](const Segment& segment) { return segment.unpacks; });
}

Segment PortionPlanner::segment_of(const data::Run& run, const data::Piece& piece) const noexcept {
  Segment segment;
  segment.input = piece.input;
  segment.output = piece.output;
  segment.bytes = static_cast<std::uint64_t>(piece.elements) * size_of(run.dtype);
  segment.element = element_of(run.dtype);
  segment.in_buffer = casts(run) ? element_of(type_of(run.wire)) : segment.element;
  if (!limits_.carrier_scales) segment.scaling = scaling_of(run);
  if (casts(run)) segment.scaling.prescale = run.prescale;
  if (divides_in_pack(run)) segment.scaling.prescale /= segment.scaling.divisor;
  if (divides_in_pack(run) || averages_in_nccl(run)) segment.scaling.divisor = 1.0;
  if (limits_.is_absent) segment.neutral = neutral_of(run);
  return segment;
}

/// Without a place and a count.
Call PortionPlanner::call_of(const data::Run& run) const noexcept {
  Call call;
  if (core::traits_of(run.kind).rooted) {
    call.kind = Call::Kind::reduce;
    call.peer = run.root;
  }
  call.dtype = casts(run) ? type_of(run.wire) : wire_type(run.dtype);
  call.op = wire_op(run.dtype, run.op);
  if (limits_.carrier_scales) {
    call.scaling = scaling_of(run);
    if (casts(run)) call.scaling.prescale = 1.0;
  } else if (averages_in_nccl(run)) {
    call.op = ReduceOp::average;
  }
  return call;
}

void PortionPlanner::add(const data::Run& run, const Uneven* uneven) {
  region_of_ = nullptr;
  plan(*this, run, uneven);
}

std::vector<Portion> PortionPlanner::take() {
  region_of_ = nullptr;
  return std::exchange(portions_, {});
}

Portion& PortionPlanner::open_portion() {
  region_of_ = nullptr;
  return portions_.emplace_back();
}

/// Whether its elements are sent as others. A rank alone sends nothing.
bool PortionPlanner::casts(const data::Run& run) const noexcept {
  return run.wire != core::Wire::own && limits_.size > 1;
}

/// Sums of 16 bits could overflow where averages do not.
bool PortionPlanner::divides_in_pack(const data::Run& run) const noexcept {
  const bool sums_16_bits = !limits_.carrier_scales && run.divisor > 1 && (casts(run) || has_16_bits(run.dtype));
  return sums_16_bits && (casts(run) || limits_.some_are_absent);
}
bool PortionPlanner::averages_in_nccl(const data::Run& run) const noexcept {
  return !limits_.carrier_scales && run.divisor > 1 && has_16_bits(run.dtype) && !divides_in_pack(run);
}

/// In a buffer: what the pack scales has been scaled there.
std::uint64_t PortionPlanner::neutral_of(const data::Run& run) const noexcept {
  const DType dtype = casts(run) ? type_of(run.wire) : run.dtype;
  alignas(8) std::byte elements[sizeof(std::uint64_t)];
  data::fill_neutral(dtype, run.op, limits_.carrier_scales && !casts(run) ? run.prescale : 1.0, elements,
                     static_cast<std::int64_t>(sizeof elements / size_of(dtype)));
  std::uint64_t bits = 0;
  std::memcpy(&bits, elements, sizeof bits);
  return bits;
}

/// The last portion, if it has room for one more segment of so many bytes, else a new one.
Portion& PortionPlanner::portion_with_room(const Segment& part) {
  if (portions_.empty() || portions_.back().buffer_bytes + rounded(part.bytes_in_buffer()) > limits_.buffer_bytes ||
      portions_.back().chunks + chunks_in(part.bytes) > limits_.chunks) {
    return open_portion();
  }
  return portions_.back();
}

bool PortionPlanner::is_in_arena(const data::Run& run, const data::Piece& piece) const noexcept {
  return limits_.direct && core::DevicePlace(piece.place).is_exact() && piece.elements > 0 &&
         core::traits_of(run.kind).in_arena && run.prescale == 1.0 && run.dtype != DType::boolean && !casts(run);
}

/// Neighbours in an arena are one collective. Behind a tensor with which an allocation ends, zeroes up to the next
/// multiple of the alignment belong to nobody, and are reduced along.
void PortionPlanner::reduce_in_arena(const data::Run& run) {
  std::vector<const data::Piece*> pieces;
  for (const data::Piece& piece : run.pieces) {
    if (is_in_arena(run, piece)) pieces.push_back(&piece);
  }
  const auto begin_of = [](const data::Piece* piece) {
    const core::DevicePlace place(piece->place);
    return std::pair(place.region, place.offset);
  };
  std::sort(pieces.begin(), pieces.end(), [&](const auto* a, const auto* b) { return begin_of(a) < begin_of(b); });
  const std::uint64_t element = size_of(run.dtype);
  std::optional<Segment> range;
  core::DevicePlace end;  // of the range
  for (const data::Piece* piece : pieces) {
    const core::DevicePlace place(piece->place);
    const std::uint64_t bytes = static_cast<std::uint64_t>(piece->elements) * element;
    const std::uint64_t padded =
        end.ends ? (end.offset + core::kArenaAlignment - 1) / core::kArenaAlignment * core::kArenaAlignment : 0;
    const bool joins = range && place.region == end.region &&
                       (place.offset == end.offset || (place.offset == padded && (padded - end.offset) % element == 0));
    if (!joins) {
      if (range) reduce_direct(run, *range, Call::Kind::all_reduce);
      range = segment_of(run, *piece);
    } else {
      range->bytes += place.offset - end.offset + bytes;
    }
    end = place;
    end.offset += bytes;
  }
  if (range) reduce_direct(run, *range, Call::Kind::all_reduce);
}

bool PortionPlanner::is_direct(const data::Run& run, std::uint64_t bytes, bool is_lone) const noexcept {
  return limits_.direct && run.prescale == 1.0 && run.dtype != DType::boolean && !casts(run) &&
         (is_lone || bytes >= limits_.direct_bytes);
}

bool PortionPlanner::has_lone_piece(const data::Run& run) const noexcept {
  std::size_t small = 0;
  for (const data::Piece& piece : run.pieces) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(piece.elements) * size_of(run.dtype);
    if (bytes > 0 && bytes < limits_.direct_bytes && !is_in_arena(run, piece)) ++small;
  }
  return small <= 1;
}

void PortionPlanner::reduce_in_buffer(const data::Run& run, Segment part) {
  const std::uint64_t most =
      std::min<std::uint64_t>(limits_.buffer_bytes * part.narrowing(), limits_.chunks * kChunkBytes);
  if (limits_.is_absent) part.unpacks = false;
  while (part.bytes > 0) {
    Segment now = cut(part, std::min(part.bytes, most));
    Portion& portion = portion_with_room(now);
    now.offset = portion.buffer_bytes;
    if (region_of_ != &run) {
      Call call = call_of(run);
      call.offset = now.offset;
      portion.calls.push_back(call);
      region_of_ = &run;
    }
    // With the zeroes that follow it.
    portion.calls.back().count += rounded(now.bytes_in_buffer()) / size_of(portion.calls.back().dtype);
    portion.buffer_bytes += rounded(now.bytes_in_buffer());
    portion.chunks += chunks_in(now.bytes);
    portion.moved_bytes += now.bytes;
    portion.segments.push_back(now);
  }
}

void PortionPlanner::reduce_direct(const data::Run& run, const Segment& part, Call::Kind kind) {
  Call call = call_of(run);
  call.kind = kind;
  call.from = part.input;
  call.to = part.output;
  call.count = part.bytes / size_of(run.dtype);
  // Scaling works on chunks, of which a portion has so many at most; what needs none is one call however large it is.
  Segment rest = part;
  rest.offset = kNoOffset;
  rest.packs = false;
  const bool scales = !part.scaling.is_identity();
  const std::size_t chunks = scales ? chunks_in(part.bytes) : 0;
  KOLO_CHECK(chunks == 0 || limits_.chunks > 0);
  if (portions_.empty() || portions_.back().chunks + std::min(chunks, limits_.chunks) > limits_.chunks) {
    open_portion();
  }
  portions_.back().calls.push_back(call);
  region_of_ = nullptr;
  if (!scales) return;
  while (rest.bytes > 0) {
    if (portions_.back().chunks >= limits_.chunks) open_portion();
    Portion& portion = portions_.back();
    const std::uint64_t room = (limits_.chunks - portion.chunks) * kChunkBytes;
    portion.segments.push_back(cut(rest, std::min(rest.bytes, room)));
    portion.chunks += chunks_in(portion.segments.back().bytes);
    portion.moved_bytes += portion.segments.back().bytes;
  }
}

void PortionPlanner::broadcast_in_buffer(Segment part, std::uint64_t most, int root) {
  if (limits_.is_absent) part.unpacks = false;
  while (part.bytes > 0) {
    Segment now = cut(part, std::min(part.bytes, most));
    Portion& portion = portion_with_room(now);
    now.offset = portion.buffer_bytes;
    portion.calls.push_back(
        {.kind = Call::Kind::broadcast, .offset = now.offset, .count = rounded(now.bytes), .peer = root});
    portion.buffer_bytes += rounded(now.bytes);
    portion.chunks += chunks_in(now.bytes);
    portion.moved_bytes += now.bytes;
    if (now.packs || now.unpacks) portion.segments.push_back(now);
  }
}

void PortionPlanner::call_direct(const Call& call) {
  if (call.count > 0) (portions_.empty() ? open_portion() : portions_.back()).calls.push_back(call);
  region_of_ = nullptr;
}

}  // namespace kolo::cuda
