// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kolo_bench {
namespace {

/// Open MPI gives rank 0 a terminal of its own for standard output, whatever mpirun's is, and a pipe for standard
/// error, which it passes on at once. A rank on mpirun's own host is its child.
bool launcher_writes_to_terminal() {
  struct stat own {};
  const bool launched = ::isatty(STDOUT_FILENO) == 1 && ::fstat(STDERR_FILENO, &own) == 0 && S_ISFIFO(own.st_mode);
  if (!launched) return false;
  const std::string path = "/proc/" + std::to_string(::getppid()) + "/fd/2";
  const int file = ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return false;
  const bool terminal = ::isatty(file) == 1;
  ::close(file);
  return terminal;
}

}  // namespace

Progress::Progress(bool shown) : shown_(shown && (::isatty(STDERR_FILENO) == 1 || launcher_writes_to_terminal())) {}

void Progress::show(std::size_t samples, double seconds) const {
  if (shown_) std::fprintf(stderr, "\r%s: %zu samples, %.1f s\033[K", what_.c_str(), samples, seconds);
}

void Progress::clear() const {
  if (shown_) std::fprintf(stderr, "\r\033[K");
}

}  // namespace kolo_bench
