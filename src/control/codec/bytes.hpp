// SPDX-License-Identifier: Apache-2.0
//
// A message is one tag byte and its fields in the order of the struct. Unsigned numbers are LEB128 varints; signed ones
// are zigzag varints; doubles are their eight bytes; a list is its length and its items. Lists of ranks and ids hold
// differences from the item before, since they mostly ascend or come from one run of numbers: one byte each.
//
// A list's length is checked against the remaining bytes, by the fewest bytes that an item takes. A list of structs
// grows while they are read. The memory that a decoder allocates is therefore bounded by a constant times what it has
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "control/codec.hpp"
#include "control/ranges.hpp"

namespace kolo::control::codec {

inline constexpr auto kLastCode = static_cast<ErrorCode>(kErrorCodeCount - 1);

class Writer {
 public:
  explicit Writer(Bytes& out) noexcept : out_(out) {}

  void byte(std::uint8_t value) { out_.push_back(static_cast<std::byte>(value)); }
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<std::uint8_t>(value | 0x80));
    byte(static_cast<std::uint8_t>(value));
  }
  void signed_number(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    number((bits << 1) ^ (value < 0 ? ~std::uint64_t{0} : 0));
  }
  void real(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    for (int shift = 0; shift < 64; shift += 8) byte(static_cast<std::uint8_t>(bits >> shift));
  }
  void text(const std::string& value) {
    number(value.size());
    const auto* data = reinterpret_cast<const std::byte*>(value.data());
    out_.insert(out_.end(), data, data + value.size());
  }
  template <class Integer>
  void list(const std::vector<Integer>& items) {
    number(items.size());
    std::int64_t before = 0;
    for (const Integer item : items) {
      signed_number(std::int64_t{item} - before);
      before = item;
    }
  }

 private:
  Bytes& out_;
};

class Reader {
 public:
  explicit Reader(ByteView bytes) noexcept : bytes_(bytes) {}

  [[nodiscard]] std::size_t left() const noexcept { return bytes_.size() - at_; }

  std::uint8_t byte() {
    if (left() == 0) refuse("it ends too early");
    return static_cast<std::uint8_t>(bytes_[at_++]);
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint8_t next = byte();
      const std::uint64_t bits = next & 0x7fU;
      if (shift == 63 && bits > 1) refuse("a number has more than 64 bits");
      value |= bits << shift;
      if ((next & 0x80U) == 0) return value;
    }
    refuse("a number has more than 64 bits");
  }
  template <class Integer>
  Integer number_up_to(std::uint64_t most) {
    const std::uint64_t value = number();
    if (value > most) refuse("a number is too large");
    return static_cast<Integer>(value);
  }
  template <class Integer>
  Integer number_of() {
    return number_up_to<Integer>(std::numeric_limits<Integer>::max());
  }
  std::int64_t signed_number() {
    const std::uint64_t value = number();
    return static_cast<std::int64_t>((value >> 1) ^ ((value & 1) != 0 ? ~std::uint64_t{0} : 0));
  }
  std::int32_t rank() { return small_number("a rank is out of range"); }
  std::int32_t small_number(const char* why_not) {
    const std::int64_t value = signed_number();
    if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max()) {
      refuse(why_not);
    }
    return static_cast<std::int32_t>(value);
  }
  template <class Enum>
  Enum choice(Enum last) {
    const std::uint8_t value = byte();
    if (value > static_cast<std::uint8_t>(last)) refuse("a choice is unknown");
    return static_cast<Enum>(value);
  }
  bool flag() {
    const std::uint8_t value = byte();
    if (value > 1) refuse("a flag is neither 0 nor 1");
    return value == 1;
  }
  double real() {
    std::uint64_t bits = 0;
    for (int shift = 0; shift < 64; shift += 8) bits |= std::uint64_t{byte()} << shift;
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  /// The length of a list whose items take at least `least_bytes` each.
  std::size_t length(std::size_t least_bytes = 1) {
    const std::uint64_t value = number();
    if (value > left() / least_bytes) refuse("a list is longer than the message");
    return static_cast<std::size_t>(value);
  }
  template <class Items, class ReadItem>
  void items(Items& items, std::size_t least_bytes, const ReadItem& read_item) {
    for (std::size_t left = length(least_bytes); left > 0; --left) read_item(items.emplace_back());
  }
  std::string text() {
    const std::size_t size = length();
    std::string value(reinterpret_cast<const char*>(bytes_.data() + at_), size);
    at_ += size;
    return value;
  }
  template <class Integer>
  std::vector<Integer> list() {
    std::vector<Integer> items(length());
    std::int64_t before = 0;
    for (Integer& item : items) {
      // Both below 2^33 in size, so their sum does not overflow.
      const std::int64_t step = signed_number();
      constexpr std::int64_t kMost = std::int64_t{1} << 33;
      if (step < -kMost || step > kMost) refuse("a list's item is out of range");
      before += step;
      if (before < std::int64_t{std::numeric_limits<Integer>::min()} ||
          before > std::int64_t{std::numeric_limits<Integer>::max()}) {
        refuse("a list's item is out of range");
      }
      item = static_cast<Integer>(before);
    }
    return items;
  }

 private:
  ByteView bytes_;
  std::size_t at_ = 0;
};

// Shared by both directions.
void write(Writer& w, const core::Signature& s);
void read(Reader& r, core::Signature& s);

// A message is one of a variant's alternatives, and its tag the alternative's index.

/// `write_fields(Writer&, const Message&)`.
template <class Variant, class WriteFields>
void encode_variant(const Variant& message, Bytes& out, const WriteFields& write_fields) {
  Writer w(out);
  w.byte(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& value) { write_fields(w, value); }, message);
}

template <class Variant, std::size_t Index = 0, class ReadFields>
Variant decode_alternative(Reader& r, std::size_t tag, const ReadFields& read_fields) {
  if constexpr (Index == std::variant_size_v<Variant>) {
    refuse("its kind is unknown");
  } else {
    if (tag != Index) return decode_alternative<Variant, Index + 1>(r, tag, read_fields);
    std::variant_alternative_t<Index, Variant> value;
    read_fields(r, value);
    return value;
  }
}

/// `read_fields(Reader&, Message&)`.
template <class Variant, class ReadFields>
Variant decode_variant(ByteView bytes, const ReadFields& read_fields) {
  Reader r(bytes);
  const std::size_t tag = r.byte();
  Variant message = decode_alternative<Variant>(r, tag, read_fields);
  if (r.left() != 0) refuse("it is longer than its contents");
  return message;
}

}  // namespace kolo::control::codec
