// SPDX-License-Identifier: Apache-2.0
#include "base/check.hpp"

#include <cerrno>
#include <cstdlib>
#include <string>

#include <unistd.h>

namespace kolo::base::detail {
namespace {

[[noreturn]] void die(const std::string& line) {
  const char* from = line.data();
  std::size_t left = line.size();
  while (left > 0) {
    const ssize_t written = ::write(STDERR_FILENO, from, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;  // the text cannot be written; abort follows
    from += written;
    left -= static_cast<std::size_t>(written);
  }
  std::abort();
}

}  // namespace

CheckFailure::CheckFailure(const char* file, int line, std::string_view condition) {
  text_ << "kolo: " << file << ':' << line << ": check failed: " << condition << ": ";
}

CheckFailure::~CheckFailure() {
  text_ << '\n';
  die(text_.str());
}

void unreachable(const char* file, int line, std::string_view message) {
  CheckFailure(file, line, "this place is unreachable").stream() << message;
  std::abort();  // not reached; some compilers do not see that the line above does not return
}

}  // namespace kolo::base::detail
