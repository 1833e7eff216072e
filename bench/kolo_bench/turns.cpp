// SPDX-License-Identifier: Apache-2.0
#include "turns.hpp"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interrupt.hpp"

namespace kolo_bench {
namespace {

constexpr char kGoOn = '+';
constexpr char kRowEnded = '.';

/// For reading and writing: so that opening waits for nobody, and reading never sees an end.
int open_pipe(const std::string& path) {
  if (::mkfifo(path.c_str(), 0600) != 0 && errno != EEXIST) {
    throw std::system_error(errno, std::generic_category(), "mkfifo " + path);
  }
  const int pipe = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (pipe < 0) throw std::system_error(errno, std::generic_category(), "open " + path);
  return pipe;
}

void put(int pipe, char token) {
  if (::write(pipe, &token, 1) != 1) throw std::system_error(errno, std::generic_category(), "write to a turn's pipe");
}

}  // namespace

Turns::Turns(const TurnFlags& flags, int rank) : index_(flags.index), alone_(flags.jobs == 1) {
  if (alone_) return;
  const auto path = [&](int job) { return flags.folder + "/" + std::to_string(job) + "." + std::to_string(rank); };
  own_ = open_pipe(path(index_));
  next_ = open_pipe(path((index_ + 1) % flags.jobs));
  if (leads()) put(own_, kGoOn);
}

Turns::~Turns() {
  if (own_ >= 0) ::close(own_);
  if (next_ >= 0) ::close(next_);
}

bool Turns::begin() {
  if (alone_) return true;
  char token = 0;
  while (::read(own_, &token, 1) != 1) {
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "read from a turn's pipe");
    if (interrupted()) throw Interrupted();
  }
  return token == kGoOn || leads();  // what the first job has sent comes back to it
}

void Turns::end(bool row_ended) {
  if (!alone_) put(next_, row_ended ? kRowEnded : kGoOn);
}

}  // namespace kolo_bench
