// SPDX-License-Identifier: Apache-2.0
//
// Kolo's errors as the exceptions that PyTorch's users know.
//
// | error | in Python |
// |---|---|
// | a wrong argument | ValueError |
// | a type, an operation or a device that Kolo does not have | NotImplementedError, a RuntimeError |
// | everything else: a rank that died, a mismatch, a deadline | torch.distributed.DistBackendError, a RuntimeError |
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <kolo/error.hpp>

namespace kolo::c10d {

/// The exception for an error of `call`, as "all_reduce: rank 3 ...".
[[nodiscard]] std::exception_ptr exception_for(const std::string& call, ErrorCode code, const std::string& sentence);
[[noreturn]] void raise(const std::string& call, ErrorCode code, const std::string& sentence);

/// Runs `body`; a `kolo::Error` leaves it as the exception for it.
template <class Body>
decltype(auto) translated(const std::string& call, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& error) {
    raise(call, error.code(), error.status().message());
  }
}

}  // namespace kolo::c10d
