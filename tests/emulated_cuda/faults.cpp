// SPDX-License-Identifier: Apache-2.0
#include "faults.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

#include "base/check.hpp"
#include "machine.hpp"

namespace kolo::emulated {
namespace {

// A signal handler has no other way to reach them. Never freed: a fault may come at any time.
std::shared_ptr<Memory>* watched = nullptr;
struct sigaction former;

std::string sentence(const void* address) {
  const Memory& memory = **watched;
  const ThreadContext& context = this_thread();
  std::string text = "emulated device: ";
  if (context.touches != nullptr) {
    text += to_string(*context.op->operation) + " touched memory that it may not";
  } else {
    text += memory.in_device_arena(address) ? "the host touched device memory" : "the host touched freed pinned memory";
  }
  // The machine's mutex may be held by the thread that faulted; this one is about to end, so it only looks.
  const void* seen = memory.program_view(address);
  if (const AllocationPtr found = memory.at(seen)) {
    const auto offset = reinterpret_cast<std::uintptr_t>(seen) - found->base;
    text += ": byte " + std::to_string(static_cast<std::int64_t>(offset)) + " of " + (found->live ? "" : "freed ") +
            found->name;
  }
  return text + "\n";
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (watched != nullptr && (*watched)->owns(info->si_addr)) {
    const std::string text = sentence(info->si_addr);
    static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
    std::abort();
  }
  if ((former.sa_flags & SA_SIGINFO) != 0) {
    former.sa_sigaction(signal, info, context);
  } else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
    former.sa_handler(signal);
  } else {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

void watch_faults(const std::shared_ptr<Memory>& memory) {
  KOLO_CHECK(watched == nullptr);
  watched = new std::shared_ptr<Memory>(memory);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  KOLO_CHECK(::sigaction(SIGSEGV, &action, &former) == 0) << std::strerror(errno);
}

}  // namespace kolo::emulated
