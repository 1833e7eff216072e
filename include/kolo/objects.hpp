// SPDX-License-Identifier: Apache-2.0

/// @file
/// Small values between ranks: bytes, strings and trivially copyable types. Synchronous. All ranks of a group make
/// these calls in the same order. Unnamed collectives may come between them in any order. If several threads of a rank
/// call at once, one call runs after another.
#ifndef KOLO_OBJECTS_HPP
#define KOLO_OBJECTS_HPP

#include <string>
#include <type_traits>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/detail/objects.hpp>
#include <kolo/export.hpp>

namespace kolo {

/// Rank `root`'s bytes, on every rank; the others' argument is ignored.
[[nodiscard]] KOLO_API std::string broadcast_bytes(const Group& group, const std::string& bytes, int root);
/// All ranks' bytes, by rank; lengths may differ.
[[nodiscard]] KOLO_API std::vector<std::string> allgather_bytes(const Group& group, const std::string& bytes);

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
