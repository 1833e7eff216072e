// SPDX-License-Identifier: Apache-2.0
//
// Results that are bytes.
#pragma once

#include <memory>

#include <kolo/kolo.h>

#include "c/arguments.hpp"
#include "c/objects.hpp"

namespace kolo::c {

/// Gives C a result of the bytes that `make` returns.
template <class Make>
kolo_status give_bytes(kolo_result** result, const Make& make) {
  kolo_result*& place = given(result, "the place for the result");
  auto made = std::make_unique<kolo_result>();
  made->bytes = make();
  place = made.release();
  return KOLO_OK;
}

}  // namespace kolo::c
