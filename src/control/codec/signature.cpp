// SPDX-License-Identifier: Apache-2.0
//
// Signatures, which messages of both directions have.
#include <kolo/error.hpp>

#include "control/codec/bytes.hpp"
#include "core/dtype.hpp"
#include "core/reduce_op.hpp"

namespace kolo::control::codec {
namespace {

Shape read_shape(Reader& r) {
  const std::uint8_t rank = r.byte();
  if (rank > Shape::kMaxRank) refuse("a shape has too many dimensions");
  std::int64_t extents[Shape::kMaxRank] = {};
  for (std::uint8_t i = 0; i < rank; ++i) extents[i] = r.number_of<std::int64_t>();
  try {
    return Shape(extents, rank);
  } catch (const Error& error) {
    refuse(error.what());
  }
}

}  // namespace

void write(Writer& w, const core::Signature& s) {
  w.byte(static_cast<std::uint8_t>(s.kind));
  w.byte(static_cast<std::uint8_t>(s.op));
  w.byte(static_cast<std::uint8_t>(s.device));
  w.signed_number(s.root);
  w.real(s.prescale);
  w.real(s.postscale);
  w.byte(static_cast<std::uint8_t>(s.wire));
  w.number(s.tensors.size());
  for (const core::TensorSignature& tensor : s.tensors) {
    w.byte(static_cast<std::uint8_t>(tensor.dtype));
    w.byte(static_cast<std::uint8_t>(tensor.shape.rank()));
    for (const std::int64_t extent : tensor.shape) w.number(static_cast<std::uint64_t>(extent));
    w.number(tensor.place);
  }
  w.number(s.members);
  w.number(s.names.size());
  for (const std::string& name : s.names) w.text(name);
  w.list(s.ranks);
  w.signed_number(s.priority);
}

void read(Reader& r, core::Signature& s) {
  s.kind = r.choice(core::kLastCollective);
  s.op = r.choice(core::kLastReduceOp);
  s.device = r.choice(DeviceKind::cuda);
  s.root = r.rank();
  s.prescale = r.real();
  s.postscale = r.real();
  s.wire = r.choice(core::kLastWire);
  r.items(s.tensors, 3, [&r](core::TensorSignature& tensor) {
    tensor.dtype = r.choice(core::kLastDType);
    tensor.shape = read_shape(r);
    tensor.place = r.number();
  });
  s.members = r.number();
  r.items(s.names, 1, [&r](std::string& name) { name = r.text(); });
  s.ranks = r.list<std::int32_t>();
  s.priority = r.small_number("a priority is out of range");
}

}  // namespace kolo::control::codec
