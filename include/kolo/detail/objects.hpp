// SPDX-License-Identifier: Apache-2.0

/// @file
/// Which values travel as bytes, and how.
#ifndef KOLO_DETAIL_OBJECTS_HPP
#define KOLO_DETAIL_OBJECTS_HPP

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/error.hpp>
#include <kolo/types.hpp>

namespace kolo::detail {

/// Types whose bytes are addresses, which mean nothing on another rank: pointers, and the views, references and
/// iterators of the standard library and of Kolo.
template <class T, class = void>
inline constexpr bool has_data = false;
template <class T>
inline constexpr bool has_data<T, std::void_t<DataOf<const T&>>> = true;
template <class T, class = void>
inline constexpr bool dereferences = false;
template <class T>
inline constexpr bool dereferences<T, std::void_t<decltype(*std::declval<const T&>())>> = true;
template <class T>
inline constexpr bool is_address =
    std::is_pointer_v<T> || std::is_member_pointer_v<T> || std::is_null_pointer_v<T> || has_data<T> || dereferences<T>;
template <class T>
inline constexpr bool is_address<std::reference_wrapper<T>> = true;
template <class T>
inline constexpr bool is_address<std::initializer_list<T>> = true;
template <class T, std::size_t N>
inline constexpr bool is_address<std::array<T, N>> = is_address<T>;
template <class T>
inline constexpr bool is_address<std::optional<T>> = is_address<T>;

/// Whether `broadcast_object` and `allgather_object` take a `T`.
template <class T>
inline constexpr bool is_object = (std::is_trivially_copyable_v<T> && !std::is_array_v<T> && !is_address<T>) ||
                                  std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::byte>>;
/// `T`; other types do not compile.
template <class T>
struct Object {
  static_assert(is_object<T>,
                "an object is a std::string, a std::vector<std::byte> or a trivially copyable value; pointers, views "
                "and arrays would send addresses: send what they point to as one of these");
  using Type = T;
};

template <class T>
inline constexpr bool is_group = std::is_convertible_v<const T&, const Group&>;

template <class T>
std::string to_bytes(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, std::vector<std::byte>>) {
    return {reinterpret_cast<const char*>(value.data()), value.size()};
  } else {
    return {reinterpret_cast<const char*>(&value), sizeof(T)};
  }
}

inline void check_object_size(std::size_t got, std::size_t wanted) {
  if (got == wanted) return;
  throw Error(ErrorCode::mismatch, "an object of " + std::to_string(got) + " bytes arrived where one of " +
                                       std::to_string(wanted) + " was expected: do all ranks exchange the same type?");
}

template <class T>
T from_bytes(const std::string& bytes) {
  if constexpr (std::is_same_v<T, std::string>) {
    return bytes;
  } else if constexpr (std::is_same_v<T, std::vector<std::byte>>) {
    const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
    return {data, data + bytes.size()};
  } else {
    check_object_size(bytes.size(), sizeof(T));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
}

}  // namespace kolo::detail

#endif  // KOLO_DETAIL_OBJECTS_HPP
