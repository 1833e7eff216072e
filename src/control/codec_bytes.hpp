// SPDX-License-Identifier: Apache-2.0
//
// How values become bytes. Unsigned numbers are LEB128 varints; signed ones are zigzag varints; doubles are their eight
// bytes; choices and flags are a byte; a list is its length and its items; what may be missing is a flag and the value.
// Lists of numbers hold differences from the item before, since they mostly ascend or come from one run of numbers: one
// byte each. A struct is its fields, in the order of its list (codec.cpp).
//
// A list's length is checked against the remaining bytes, by the fewest bytes that an item takes. A list of structs
// grows while they are read. The memory that a reader allocates is therefore bounded by a constant times what it has
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <kolo/error.hpp>
#include <kolo/types.hpp>

#include "control/codec.hpp"
#include "control/ranges.hpp"

namespace kolo::control::codec {

/// The fields of a struct, as pointers to them; codec.cpp has them all.
template <class Struct>
inline constexpr std::nullptr_t kFields = nullptr;

/// The last value of a choice.
template <class Enum>
inline constexpr Enum kLast = Enum{};

template <class T>
inline constexpr bool kIsStruct = !std::is_same_v<decltype(kFields<T>), const std::nullptr_t>;
template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
/// Whether a list's items are numbers, and sent as differences.
template <class List>
inline constexpr bool kIsOfNumbers = std::is_integral_v<typename List::value_type>;

/// The fewest bytes that a value takes.
template <class T>
constexpr std::size_t least_bytes() {
  if constexpr (kIsStruct<T>) {
    const auto sum = []<class... Field>(const std::tuple<Field T::*...>&) { return (least_bytes<Field>() + ... + 0); };
    return sum(kFields<T>);
  } else {
    return std::is_same_v<T, double> ? sizeof(double) : 1;
  }
}

class Writer {
 public:
  explicit Writer(Bytes& out) noexcept : out_(out) {}

  template <class T>
  void put(const T& value) {
    if constexpr (kIsStruct<T>) {
      std::apply([&](auto... field) { (put(value.*field), ...); }, kFields<T>);
    } else if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
      byte(static_cast<std::uint8_t>(value));
    } else if constexpr (std::is_unsigned_v<T>) {
      number(value);
    } else if constexpr (std::is_integral_v<T>) {
      signed_number(value);
    } else if constexpr (kIsOptional<T>) {
      put(value.has_value());
      if (value) put(*value);
    } else {
      number(value.size());
      if constexpr (kIsOfNumbers<T>) {
        differences(value);
      } else {
        for (const auto& item : value) put(item);
      }
    }
  }
  void put(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    for (int shift = 0; shift < 64; shift += 8) byte(static_cast<std::uint8_t>(bits >> shift));
  }
  void put(const std::string& value) {
    number(value.size());
    const auto* data = reinterpret_cast<const std::byte*>(value.data());
    out_.insert(out_.end(), data, data + value.size());
  }
  void put(const Shape& shape) {
    byte(static_cast<std::uint8_t>(shape.rank()));
    for (const std::int64_t extent : shape) number(static_cast<std::uint64_t>(extent));
  }
  void byte(std::uint8_t value) { out_.push_back(static_cast<std::byte>(value)); }

 private:
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<std::uint8_t>(value | 0x80));
    byte(static_cast<std::uint8_t>(value));
  }
  void signed_number(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    number((bits << 1) ^ (value < 0 ? ~std::uint64_t{0} : 0));
  }
  template <class Integer>
  void differences(const std::vector<Integer>& items) {
    std::int64_t before = 0;
    for (const Integer item : items) {
      signed_number(std::int64_t{item} - before);
      before = item;
    }
  }

  Bytes& out_;
};

class Reader {
 public:
  explicit Reader(ByteView bytes) noexcept : bytes_(bytes) {}

  [[nodiscard]] std::size_t remaining() const noexcept { return bytes_.size() - at_; }

  template <class T>
  void get(T& value) {
    if constexpr (kIsStruct<T>) {
      std::apply([&](auto... field) { (get(value.*field), ...); }, kFields<T>);
      if constexpr (std::is_same_v<T, CountWord>) {
        if (CountWord::unpack(value.pack()).count != value.count) refuse("a number is too large");
      }
    } else if constexpr (std::is_same_v<T, bool>) {
      const std::uint8_t flag = byte();
      if (flag > 1) refuse("a flag is neither 0 nor 1");
      value = flag == 1;
    } else if constexpr (std::is_enum_v<T>) {
      const std::uint8_t choice = byte();
      if (choice > static_cast<std::uint8_t>(kLast<T>)) refuse("a choice is unknown");
      value = static_cast<T>(choice);
    } else if constexpr (std::is_unsigned_v<T>) {
      value = number_of<T>();
    } else if constexpr (std::is_integral_v<T>) {
      value = in_range<T>(signed_number(), "a number is out of range");
    } else if constexpr (kIsOptional<T>) {
      bool has_value = false;
      get(has_value);
      if (!has_value) return;
      typename T::value_type contents;
      get(contents);
      value = std::move(contents);  // clang 14 does not compile value.emplace()
    } else if constexpr (kIsOfNumbers<T>) {
      value = differences<typename T::value_type>();
    } else {
      for (std::size_t left = length(least_bytes<typename T::value_type>()); left > 0; --left) {
        get(value.emplace_back());
      }
    }
  }
  void get(double& value) {
    std::uint64_t bits = 0;
    for (int shift = 0; shift < 64; shift += 8) bits |= std::uint64_t{byte()} << shift;
    std::memcpy(&value, &bits, sizeof value);
  }
  void get(std::string& value) {
    const std::size_t size = length(1);
    value.assign(reinterpret_cast<const char*>(bytes_.data() + at_), size);
    at_ += size;
  }
  void get(Shape& shape) {
    const std::uint8_t rank = byte();
    if (rank > Shape::kMaxRank) refuse("a shape has too many dimensions");
    std::int64_t extents[Shape::kMaxRank] = {};
    for (std::uint8_t i = 0; i < rank; ++i) extents[i] = number_of<std::int64_t>();
    try {
      shape = Shape(extents, rank);
    } catch (const Error& error) {
      refuse(error.what());
    }
  }
  std::uint8_t byte() {
    if (remaining() == 0) refuse("it ends too early");
    return static_cast<std::uint8_t>(bytes_[at_++]);
  }

 private:
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
  Integer number_of() {
    const std::uint64_t value = number();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<Integer>::max())) refuse("a number is too large");
    return static_cast<Integer>(value);
  }
  std::int64_t signed_number() {
    const std::uint64_t value = number();
    return static_cast<std::int64_t>((value >> 1) ^ ((value & 1) != 0 ? ~std::uint64_t{0} : 0));
  }
  template <class Integer>
  static Integer in_range(std::int64_t value, const char* why_not) {
    using Limits = std::numeric_limits<Integer>;
    if (value < std::int64_t{Limits::min()} || value > std::int64_t{Limits::max()}) refuse(why_not);
    return static_cast<Integer>(value);
  }
  /// The length of a list whose items take at least `least` bytes each.
  std::size_t length(std::size_t least) {
    const std::uint64_t value = number();
    if (value > remaining() / least) refuse("a list is longer than the message");
    return static_cast<std::size_t>(value);
  }
  template <class Integer>
  std::vector<Integer> differences() {
    std::vector<Integer> items(length(1));
    std::int64_t before = 0;
    for (Integer& item : items) {
      // Both below 2^33 in size, so their sum does not overflow.
      const std::int64_t step = signed_number();
      constexpr std::int64_t kMost = std::int64_t{1} << 33;
      if (step < -kMost || step > kMost) refuse("a list's item is out of range");
      before += step;
      item = in_range<Integer>(before, "a list's item is out of range");
    }
    return items;
  }

  ByteView bytes_;
  std::size_t at_ = 0;
};

}  // namespace kolo::control::codec
