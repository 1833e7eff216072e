// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/explain_route.hpp"

#include "core/collectives.hpp"

namespace kolo::cuda {
namespace {

std::string in_buffer(const std::string& why) { return "through a fusion buffer, because " + why; }
std::string in_place(const std::string& why) { return "where it lies, because " + why; }

}  // namespace

std::string explain_route(const PortionPlanner& portions, const data::Run& run, const data::Piece& piece) {
  const PortionLimits& limits = portions.limits();
  if (!limits.direct) return in_buffer("the CPU reduces what is in one (KOLO_GPU_BACKEND is staged)");
  if (!core::traits_of(run.kind).reduces) return in_place("it is moved, not reduced");
  if (portions.is_in_arena(run, piece)) return in_place("all ranks have it at the same place of an arena");
  const std::uint64_t bytes = static_cast<std::uint64_t>(piece.elements) * size_of(run.dtype);
  const bool is_dealt = core::traits_of(run.kind).shapes != core::Shapes::own_rows || run.rows % limits.size == 0;
  const std::string least = "KOLO_GPU_DIRECT_BYTES (" + std::to_string(limits.direct_bytes) + ")";
  const bool is_lone = core::traits_of(run.kind).shapes == core::Shapes::own_rows || portions.has_lone_piece(run);
  if (is_dealt && portions.is_direct(run, bytes, false)) return in_place("it has at least " + least);
  if (is_dealt && portions.is_direct(run, bytes, is_lone))
    return in_place("no other tensor would share its collective");
  if (run.wire != core::Wire::own && limits.size > 1) return in_buffer("it is sent as another type");
  if (run.prescale != 1.0) return in_buffer("it is multiplied before it is reduced (prescale)");
  if (run.dtype == DType::boolean) return in_buffer("booleans are made 0 or 1 before they are reduced");
  if (!is_dealt) return in_buffer("the ranks get different numbers of rows");
  return in_buffer("it is smaller than " + least);
}

}  // namespace kolo::cuda
