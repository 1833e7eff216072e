// SPDX-License-Identifier: Apache-2.0
//
// Errors as text, to be compared whole.
#pragma once

#include <string>

#include <kolo/error.hpp>

namespace kolo::test {

/// "invalid_argument: <sentence>" of the Error that `body` throws; "nothing" when it throws none.
template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.status().message();
  }
  return "nothing";
}

}  // namespace kolo::test
