// SPDX-License-Identifier: Apache-2.0
#include "base/check.hpp"

#include <cstdlib>

#include <unistd.h>

#include "base/files.hpp"

namespace kolo::base::detail {
CheckFailure::CheckFailure(const char* file, int line, std::string_view condition) {
  text_ << "kolo: " << file << ':' << line << ": check failed: " << condition << ": ";
}

CheckFailure::~CheckFailure() {
  text_ << '\n';
  static_cast<void>(write_all(STDERR_FILENO, text_.str()));  // abort follows, whether or not it can be written
  std::abort();
}

void unreachable(const char* file, int line, std::string_view message) {
  CheckFailure(file, line, "this place is unreachable").stream() << message;
  std::abort();  // not reached; some compilers do not see that the line above does not return
}

}  // namespace kolo::base::detail
