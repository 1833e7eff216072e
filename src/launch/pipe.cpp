// SPDX-License-Identifier: Apache-2.0
#include "launch/pipe.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <iostream>

#include "base/system_error.hpp"

namespace kolo::launch {

Pipe Pipe::make() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) base::throw_errno("making a pipe for a rank's output", errno);
  Pipe pipe;
  pipe.read.reset(ends[0]);
  pipe.write.reset(ends[1]);
  return pipe;
}

void flush_streams() noexcept {
  try {
    std::cout.flush();
    std::clog.flush();
  } catch (const std::exception&) {  // the program has enabled exceptions of its streams, which cannot be passed on
                                     // here
  }
  std::fflush(nullptr);
}

}  // namespace kolo::launch
