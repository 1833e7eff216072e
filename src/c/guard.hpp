// SPDX-License-Identifier: Apache-2.0
//
// The border between C++ and C: exceptions become statuses, and the thread's last error.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include <kolo/error.hpp>
#include <kolo/kolo.h>

namespace kolo::c {

/// Notes the sentence as the thread's last error, at most 8 KiB of it, and returns the status.
kolo_status fail(kolo_status status, std::string_view sentence) noexcept;

inline kolo_status status_of(ErrorCode code) noexcept { return static_cast<kolo_status>(code); }

/// Runs the body of a function of C: it throws, or returns nothing, `KOLO_OK`, or what `fail` has returned.
template <class Body>
kolo_status guarded(const Body& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return KOLO_OK;
    } else {
      return body();
    }
  } catch (const Error& error) {
    return fail(status_of(error.code()), error.status().message());
  } catch (const std::bad_alloc&) {
    return fail(KOLO_OUT_OF_MEMORY, "there is no memory for this call");
  } catch (const std::length_error& error) {  // a list longer than any memory
    return fail(KOLO_OUT_OF_MEMORY, error.what());
  } catch (const std::exception& error) {
    return fail(KOLO_TRANSPORT, error.what());
  }
}

}  // namespace kolo::c
