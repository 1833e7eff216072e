// SPDX-License-Identifier: Apache-2.0
//
// Checks what comes from C, makes C++ values of it, and gives C what it gets. All throw Error (invalid_argument) with
// what would be right.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/error.hpp>
#include <kolo/handle.hpp>
#include <kolo/kolo.h>
#include <kolo/options.hpp>
#include <kolo/types.hpp>
#include <kolo/where.hpp>

#include "c/objects.hpp"

namespace kolo::c {

[[noreturn]] inline void refuse(const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); }

/// What a pointer that must not be NULL points to. `what` names the argument: "the group".
template <class T>
T& given(T* pointer, std::string_view what) {
  if (pointer == nullptr) refuse(std::string(what) + " is NULL: give a pointer to one");
  return *pointer;
}
inline const Group& given_group(const kolo_group* group) {
  if (group == nullptr) refuse("the group is NULL: kolo_world gives that of all ranks");
  return group->group;
}
/// A list of `count` elements, which may be NULL if there are none.
template <class T>
Span<T> given_list(T* list, std::size_t count, std::string_view what) {
  if (list == nullptr && count != 0) {
    refuse(std::string(what) + " is NULL, but its length is " + std::to_string(count) + ": give a list of that length");
  }
  return {list, count};
}
inline Where where_of(const kolo_group* group, const char* name) {
  return name == nullptr ? Where(given_group(group)) : Where(given_group(group), name);
}
std::string_view given_name(const char* name, std::string_view what);

DType dtype_of(std::int32_t dtype);
Device device_of(std::int32_t device, std::int32_t index);
TensorView view_of(const kolo_tensor& tensor);
inline TensorView given_view(const kolo_tensor* tensor, std::string_view what) { return view_of(given(tensor, what)); }
std::optional<TensorView> optional_view(const kolo_tensor* tensor);
std::vector<NamedView> views_of(const kolo_named_tensor* tensors, std::size_t count);
/// The reverse of `view_of`, for memory of the CPU.
kolo_tensor tensor_of(const void* data, DType dtype, const Shape& shape) noexcept;

/// Empty for a negative number: the default. The core checks that it is more than zero.
std::optional<std::chrono::nanoseconds> timeout_of(double seconds);

/// Throws unless the struct's size is one that it has had. `first`: its size when it was new. `init`: its macro.
void check_size(std::size_t size, std::size_t first, std::size_t now, std::string_view init);
/// A struct that may come from a program compiled with another header: what that does not know has its default.
template <class Struct>
Struct copied(const Struct& given, Struct defaults, std::size_t first, std::string_view init) {
  check_size(given.size, first, sizeof(Struct), init);
  std::memcpy(&defaults, &given, given.size);
  return defaults;
}
template <class Struct>
Struct options_of(const Struct* given, Struct defaults, std::size_t first, std::string_view init) {
  return given == nullptr ? defaults : copied(*given, defaults, first, init);
}

kolo_allreduce_options checked_options(const kolo_allreduce_options* options);
kolo_options checked_options(const kolo_options* options);

/// The options of a reduction, of any of its three types.
template <class Options>
Options options_as(const kolo_allreduce_options* from) {
  const kolo_allreduce_options checked = checked_options(from);
  Options options;
  options.op = static_cast<ReduceOp>(checked.op);
  options.prescale = checked.prescale;
  options.postscale = checked.postscale;
  options.timeout = timeout_of(checked.timeout);
  if (checked.send_as != KOLO_OWN_TYPE) options.send_as = dtype_of(checked.send_as);
  options.priority = checked.priority;
  return options;
}
/// The options of another collective.
template <class Options>
Options options_as(const kolo_options* from) {
  const kolo_options checked = checked_options(from);
  Options options;
  options.timeout = timeout_of(checked.timeout);
  options.priority = checked.priority;
  return options;
}

/// Gives C a result of the bytes that `make` returns.
template <class Make>
kolo_status give_bytes(kolo_result** result, const Make& make) {
  kolo_result*& place = given(result, "the place for the result");
  auto made = std::make_unique<kolo_result>();
  made->bytes = make();
  place = made.release();
  return KOLO_OK;
}

/// Starts an operation, and gives its handle to C. Nothing can fail once it has been started.
template <class Start>
kolo_status started(kolo_handle** handle, std::function<void(Handle&)> write_outputs, const Start& start,
                    bool is_receive = false) {
  auto made = std::make_unique<kolo_handle>();
  made->write_outputs = std::move(write_outputs);
  made->is_receive = is_receive;
  made->handle = start();
  *handle = made.release();
  return KOLO_OK;
}

}  // namespace kolo::c
