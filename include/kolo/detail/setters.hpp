// SPDX-License-Identifier: Apache-2.0

/// @file
/// The setters of options. On a variable `with_...` sets the field and returns the variable; on a temporary it returns
/// a value, so that a chain can be kept: `const auto& options = AllreduceOptions{}.with_op(ReduceOp::max);`.
///
/// A header of options includes this last, and undefines both macros at its end: none is left to a program. So this
/// header has no guard.

#include <chrono>
#include <utility>

#include <kolo/detail/duration.hpp>

/// Declares `with_<field>`, in `Options` or a base class of it.
#define KOLO_SETTER(Options, Type, field)                                                                              \
  Options& with_##field(Type value)& {                                                                                 \
    field = std::move(value);                                                                                          \
    return static_cast<Options&>(*this);                                                                               \
  }                                                                                                                    \
  [[nodiscard]] Options with_##field(Type value)&& {                                                                   \
    field = std::move(value);                                                                                          \
    return std::move(static_cast<Options&>(*this));                                                                    \
  }

/// Declares `with_timeout`, which takes a duration of any unit.
#define KOLO_SETTER_TIMEOUT(Options)                                                                                   \
  template <class Rep, class Period>                                                                                   \
  Options& with_timeout(std::chrono::duration<Rep, Period> value)& {                                                   \
    timeout = ::kolo::detail::to_nanoseconds(value);                                                                   \
    return static_cast<Options&>(*this);                                                                               \
  }                                                                                                                    \
  template <class Rep, class Period>                                                                                   \
  [[nodiscard]] Options with_timeout(std::chrono::duration<Rep, Period> value)&& {                                     \
    timeout = ::kolo::detail::to_nanoseconds(value);                                                                   \
    return std::move(static_cast<Options&>(*this));                                                                    \
  }
