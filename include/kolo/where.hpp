// SPDX-License-Identifier: Apache-2.0

/// @file
/// The first argument of a collective: in which group, and under which name.
///
///     kolo::allreduce(x);                // all ranks of the calling thread's context; no name
///     kolo::allreduce("w", x);           // all ranks
///     kolo::allreduce(group, x);         // no name
///     kolo::allreduce({group, "w"}, x);
#ifndef KOLO_WHERE_HPP
#define KOLO_WHERE_HPP

#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

#include <kolo/context.hpp>

namespace kolo {

namespace detail {
/// A name is text: a literal, a `const char*`, a std::string, or what else converts to std::string_view.
template <class Name>
using IfName = std::enable_if_t<std::is_convertible_v<const Name&, std::string_view>>;

/// Never without data: an empty name is a name, too. A null pointer is an empty one.
template <class Name>
constexpr std::string_view text_of(const Name& name) {
  if constexpr (std::is_pointer_v<Name>) {
    if (name == nullptr) return std::string_view("");
  }
  const std::string_view text = name;
  return text.data() != nullptr ? text : std::string_view("");
}
}  // namespace detail

/// A group, a name, or both. It refers to them and owns neither, so it is an argument and nothing to keep: a function
/// of your own that makes calls takes a `const Where&`. Nothing refers to the group or the name after the call has
/// returned; a started operation has its own copy of the name.
class Where {
 public:
  Where(const Group& group) noexcept : group_(&group) {}
  /// The context's world.
  Where(const Context& context) noexcept : group_(&static_cast<const Group&>(context)) {}
  Where(const Context&&) = delete;  // a temporary leaves the job at the end of the line: keep it in a variable
  /// All ranks of the calling thread's context.
  template <class Name, class = detail::IfName<Name>>
  Where(const Name& name) : name_(detail::text_of(name)) {}
  template <class Name, class = detail::IfName<Name>>
  Where(const Group& group, const Name& name) : group_(&group), name_(detail::text_of(name)) {}
  Where(std::nullptr_t) = delete;                // a name is text, not a null pointer
  Where(const Group&, std::nullptr_t) = delete;  // a name is text, not a null pointer
  Where(const Where&) = delete;                  // the group or the name may be gone: pass it by reference
  Where& operator=(const Where&) = delete;       // the group or the name may be gone: pass it by reference

  /// Throws `Error` (not_initialized) if no group was given, and calls without a context have none on this thread.
  [[nodiscard]] const Group& group() const {
    return group_ != nullptr ? *group_ : static_cast<const Group&>(current_context());
  }
  /// Empty if no name was given: the order of the group's calls is the name.
  [[nodiscard]] std::optional<std::string_view> name() const noexcept {
    return name_.data() != nullptr ? std::optional<std::string_view>(name_) : std::nullopt;
  }

 private:
  const Group* group_ = nullptr;
  std::string_view name_;
};

}  // namespace kolo

#endif  // KOLO_WHERE_HPP
