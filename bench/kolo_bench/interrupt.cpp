// SPDX-License-Identifier: Apache-2.0
#include "interrupt.hpp"

#include <cerrno>
#include <csignal>
#include <system_error>

namespace kolo_bench {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void note(int) { g_interrupted = 1; }

}  // namespace

void note_interrupts() {
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // without SA_RESTART: a read that waits for its turn returns
  for (const int signal : {SIGINT, SIGTERM}) {
    if (::sigaction(signal, &action, nullptr) != 0) {
      throw std::system_error(errno, std::generic_category(), "sigaction");
    }
  }
}

bool interrupted() noexcept { return g_interrupted != 0; }

}  // namespace kolo_bench
