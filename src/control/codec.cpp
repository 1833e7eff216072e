// SPDX-License-Identifier: Apache-2.0
//
// A message is one of a variant's alternatives: the alternative's index as a byte, and its fields.
#include "control/codec.hpp"

#include <cstddef>
#include <cstdint>
#include <variant>

#include "control/codec/bytes.hpp"
#include "control/codec/fields.hpp"

namespace kolo::control {
namespace {

using codec::Reader;
using codec::Writer;

template <class Variant>
void encode_variant(const Variant& message, Bytes& out) {
  Writer writer(out);
  writer.byte(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& value) { writer.put(value); }, message);
}

template <class Variant, std::size_t Index = 0>
Variant decode_alternative(Reader& reader, std::size_t tag) {
  if constexpr (Index == std::variant_size_v<Variant>) {
    refuse("its kind is unknown");
  } else {
    if (tag != Index) return decode_alternative<Variant, Index + 1>(reader, tag);
    std::variant_alternative_t<Index, Variant> value;
    reader.get(value);
    return value;
  }
}

template <class Variant>
Variant decode_variant(ByteView bytes) {
  Reader reader(bytes);
  const std::size_t tag = reader.byte();
  Variant message = decode_alternative<Variant>(reader, tag);
  if (reader.remaining() != 0) refuse("it is longer than its contents");
  return message;
}

}  // namespace

void encode(const UpMessage& message, Bytes& out) { encode_variant(message, out); }
void encode(const LogEntry& entry, Bytes& out) { encode_variant(entry, out); }

UpMessage decode_up(ByteView bytes) { return decode_variant<UpMessage>(bytes); }
LogEntry decode_log(ByteView bytes) { return decode_variant<LogEntry>(bytes); }

}  // namespace kolo::control
