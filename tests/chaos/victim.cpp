// SPDX-License-Identifier: Apache-2.0
#include "victim.hpp"

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/context.hpp>

namespace kolo::chaos {
namespace {

constexpr std::array<const char*, 9> kPhases = {"before",   "mpi_init",  "init",     "first_step", "step",
                                                "messages", "last_step", "shutdown", "after"};
constexpr std::array<const char*, 9> kKinds = {"kill",  "stop",   "slow",     "return", "exit",
                                               "throw", "absent", "mismatch", "leave"};

template <class Names>
std::size_t index_of(const Names& names, const std::string& text) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text == names[i]) return i;
  }
  throw std::runtime_error("there is no " + text);
}

}  // namespace

const char* to_string(Phase phase) noexcept { return kPhases[static_cast<std::size_t>(phase)]; }
Phase phase_of(const std::string& text) { return static_cast<Phase>(index_of(kPhases, text)); }
Kind kind_of(const std::string& text) { return static_cast<Kind>(index_of(kKinds, text)); }

void Victim::enter(Phase phase) {
  phase_ = phase;
  events_ = -1;
  event();
}

void Victim::event() {
  const std::int64_t number = ++events_;
  if (!fate_.victim || fate_.kind == Kind::disagree || phase_ != trigger() || number != fate_.event) return;
  if (fate_.delay.count() == 0 && phase_ == fate_.phase) {
    strike();
  } else if (!std::exchange(waits_to_strike_, true)) {
    std::thread([this] { strike_later(); }).detach();
  }
}

void Victim::disagree() {
  if (fate_.victim) facts_.note(std::string("HIT ") + to_string(phase_now()));
  std::vector<float> tensor(fate_.victim ? 3 : 4);
  kolo::allreduce("chaos.shape", kolo::view(tensor));
}

/// kolo::init begins with MPI_Init: what comes behind it is waited for from its beginning.
Phase Victim::trigger() const { return fate_.phase == Phase::init ? Phase::mpi_init : fate_.phase; }

/// MPI_Init ends inside kolo::init.
Phase Victim::phase_now() const {
  const Phase phase = phase_;
  if (phase != Phase::mpi_init) return phase;
  int initialized = 0;
  return MPI_Initialized(&initialized) == MPI_SUCCESS && initialized != 0 ? Phase::init : phase;
}

void Victim::strike_later() {
  while (fate_.phase == Phase::init && phase_now() == Phase::mpi_init) std::this_thread::yield();
  std::this_thread::sleep_for(fate_.delay);
  strike();
}

void Victim::strike() {
  facts_.note(std::string("HIT ") + to_string(phase_now()));
  switch (fate_.kind) {
  case Kind::kill:
    ::kill(::getpid(), SIGKILL);
    break;
  case Kind::stop:
  case Kind::slow:  // the process that watches us lets us go on
    ::kill(::getpid(), SIGSTOP);
    break;
  case Kind::leave:
    kolo::shutdown();
    throw Leave{};
  case Kind::give_back:
    throw Leave{};
  case Kind::exit:
    std::exit(kStatusOfExit);
  case Kind::raise:
    throw OwnFailure("the program's own failure");
  case Kind::stay_away:
    while (true) ::pause();
  case Kind::disagree:
    break;  // it does not strike
  }
}

}  // namespace kolo::chaos
