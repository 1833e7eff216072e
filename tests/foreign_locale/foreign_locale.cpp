// SPDX-License-Identifier: Apache-2.0
//
// Loaded before a program (LD_PRELOAD): main begins in a locale of a decimal comma, "1.234,5", for C's functions and
// for the streams of C++, as where a program has called setlocale and std::locale::global.
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <locale>
#include <sstream>
#include <string>

namespace {

[[noreturn]] void fail(const char* why) {
  std::fprintf(stderr, "foreign_locale: %s\n", why);
  std::abort();
}

__attribute__((constructor)) void go_abroad() {
  try {
    std::locale::global(std::locale("de_DE.UTF-8"));  // sets C's, too: it has a name
  } catch (const std::exception& error) {
    fail(error.what());
  }
  std::ostringstream grouped;
  grouped << 30299;
  if (grouped.str() != "30.299" || std::to_string(0.5) != "0,500000") fail("de_DE.UTF-8 spells numbers as C does");
}

}  // namespace
