// SPDX-License-Identifier: Apache-2.0
//
// Whether short unnamed calls do without the log.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include <kolo/collectives.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/info.hpp>

namespace kolo::testing {

/// Makes small unnamed calls until each rank has had one without the log since `kolo::detail::counters().shortcuts` was
/// `before`. A rank that waits long for the others takes a call to the log; on a busy machine many do.
inline void expect_calls_without_the_log(std::uint64_t before) {
  for (int call = 0; call < 100'000; ++call) {
    if (kolo::allreduce(kolo::detail::counters().shortcuts > before ? 1 : 0, ReduceOp::min) == 1) return;
  }
  ADD_FAILURE() << "every call went by the log";
}

}  // namespace kolo::testing
