// SPDX-License-Identifier: Apache-2.0

/// @file
/// Small values between ranks: bytes, strings and trivially copyable types. Synchronous, unnamed: the order of calls is
/// their name, as for every unnamed collective.
#ifndef KOLO_OBJECTS_HPP
#define KOLO_OBJECTS_HPP

#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <kolo/collectives.hpp>

namespace kolo {

/// Rank `root`'s bytes, on every rank; the others' argument is ignored.
[[nodiscard]] KOLO_API std::string broadcast_bytes(Context& context, const std::string& bytes, int root);
/// Everyone's bytes, by rank; lengths may differ.
[[nodiscard]] KOLO_API std::vector<std::string> allgather_bytes(Context& context, const std::string& bytes);

namespace detail {

template <class T>
std::string to_bytes(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, std::vector<std::byte>>) {
    return {reinterpret_cast<const char*>(value.data()), value.size()};
  } else {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>,
                  "an object is a string, a vector of bytes, or a trivially copyable value");
    return {reinterpret_cast<const char*>(&value), sizeof(T)};
  }
}

KOLO_API void check_object_size(std::size_t got, std::size_t wanted);

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

/// Rank `root`'s value, on every rank. `T` is std::string, std::vector<std::byte>, or trivially copyable.
template <class T>
[[nodiscard]] T broadcast_object(Context& context, const T& value, int root = 0) {
  return detail::from_bytes<T>(broadcast_bytes(context, detail::to_bytes(value), root));
}
template <class T>
[[nodiscard]] T broadcast_object(const T& value, int root = 0) {
  return broadcast_object(current_context(), value, root);
}

/// Everyone's value, by rank.
template <class T>
[[nodiscard]] std::vector<T> allgather_object(Context& context, const T& value) {
  std::vector<T> values;
  for (const std::string& bytes : allgather_bytes(context, detail::to_bytes(value))) {
    values.push_back(detail::from_bytes<T>(bytes));
  }
  return values;
}
template <class T>
[[nodiscard]] std::vector<T> allgather_object(const T& value) {
  return allgather_object(current_context(), value);
}

}  // namespace kolo

#endif  // KOLO_OBJECTS_HPP
