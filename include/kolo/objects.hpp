// SPDX-License-Identifier: Apache-2.0

/// @file
/// Small values between ranks: bytes, strings and trivially copyable types. Synchronous. All ranks of a group make
/// these calls in the same order. Unnamed collectives may come between them in any order. If several threads of a rank
/// call at once, one call runs after another.
#ifndef KOLO_OBJECTS_HPP
#define KOLO_OBJECTS_HPP

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

#include <kolo/collectives.hpp>

namespace kolo {

/// Rank `root`'s bytes, on every rank; the others' argument is ignored.
[[nodiscard]] KOLO_API std::string broadcast_bytes(const Group& group, const std::string& bytes, int root);
/// All ranks' bytes, by rank; lengths may differ.
[[nodiscard]] KOLO_API std::vector<std::string> allgather_bytes(const Group& group, const std::string& bytes);

namespace detail {

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

}  // namespace detail

/// Rank `root`'s value, on every rank. `T` is std::string, std::vector<std::byte>, or trivially copyable. Pointers,
/// views and arrays do not compile: send what they point to, as one of these.
template <class T>
[[nodiscard]] typename detail::Object<T>::Type broadcast_object(const Group& group, const T& value, int root = 0) {
  return detail::from_bytes<T>(broadcast_bytes(group, detail::to_bytes(value), root));
}
template <class T, class = std::enable_if_t<!detail::is_group<T>>>
[[nodiscard]] typename detail::Object<T>::Type broadcast_object(const T& value, int root = 0) {
  return broadcast_object(current_context(), value, root);
}

/// All ranks' values, by rank. `T` as for `broadcast_object`.
template <class T>
[[nodiscard]] std::vector<typename detail::Object<T>::Type> allgather_object(const Group& group, const T& value) {
  std::vector<T> values;
  for (const std::string& bytes : allgather_bytes(group, detail::to_bytes(value))) {
    values.push_back(detail::from_bytes<T>(bytes));
  }
  return values;
}
template <class T, class = std::enable_if_t<!detail::is_group<T>>>
[[nodiscard]] std::vector<typename detail::Object<T>::Type> allgather_object(const T& value) {
  return allgather_object(current_context(), value);
}

}  // namespace kolo

#endif  // KOLO_OBJECTS_HPP
