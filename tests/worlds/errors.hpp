// SPDX-License-Identifier: Apache-2.0
//
// How the tests of worlds look at errors: by code and by sentence.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include <kolo/error.hpp>

namespace kolo::testing {

/// What `call` throws: its sentence when the code is the wanted one, else something that no test expects.
template <class Call>
std::string sentence_of(ErrorCode wanted, Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& error) {
    if (error.code() == wanted) return error.status().message();
    return "(another code: " + std::string(to_string(error.code())) + ") " + error.status().message();
  } catch (const std::exception& error) {
    return std::string("(no kolo::Error) ") + error.what();
  }
  return "(nothing was thrown)";
}

/// Success when `text` has all of `parts` in it.
inline ::testing::AssertionResult has(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    if (text.find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "no \"" << part << "\" in \"" << text << "\"";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace kolo::testing
