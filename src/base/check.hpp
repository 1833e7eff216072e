// SPDX-License-Identifier: Apache-2.0
//
// Checks of invariants. A broken invariant is a bug in Kolo: the process prints where and why, and aborts. Nothing here
// throws. Do not use these macros for failures that Kolo does not cause (a bad argument, a dead rank): those are an
// Error.
#pragma once

#include <ostream>
#include <string_view>

#include "base/text.hpp"

/// KOLO_CHECK(condition) << "anything that streams"; the message is evaluated only when the condition is false.
#define KOLO_CHECK(condition)                                                                                          \
  __builtin_expect(static_cast<bool>(condition), 1)                                                                    \
      ? static_cast<void>(0)                                                                                           \
      : ::kolo::base::detail::Voidify() & ::kolo::base::detail::CheckFailure(__FILE__, __LINE__, #condition).stream()

/// KOLO_UNREACHABLE() or KOLO_UNREACHABLE("why"): for places that no input leads to. Does not return.
#define KOLO_UNREACHABLE(...) ::kolo::base::detail::unreachable(__FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__)

namespace kolo::base::detail {

/// Gathers the message; its destructor ends the process.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, std::string_view condition);
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();

  std::ostream& stream() noexcept { return text_; }

 private:
  Text text_;
};

[[noreturn]] void unreachable(const char* file, int line, std::string_view message = {});

/// Turns a streamed expression into void; `&` binds weaker than `<<` and stronger than `?:`.
struct Voidify {
  void operator&(std::ostream& /*stream*/) const noexcept {}
};

}  // namespace kolo::base::detail
