// SPDX-License-Identifier: Apache-2.0
//
// A rank of a job that scripts/test chaos starts: random steps of every collective, every byte compared (tests/soak),
// until the victim among the ranks is killed, stopped, delayed, or leaves.
//
// usage: mpi_chaos FOLDER RANK SEED STEPS VICTIM KIND PHASE EVENT DELAY_US PAUSE_MS STYLE [NAME=VALUE]...
//   FOLDER    where the facts go (facts.hpp)
//   RANK      the variable that tells this rank's place (OMPI_COMM_WORLD_RANK)
//   KIND      kill, stop, slow (stopped and let go after PAUSE_MS), return, exit, throw,
//             absent (its program does nothing any more), mismatch (its tensor has another shape than the others'),
//             leave (it calls kolo::shutdown, and returns)
//   PHASE     of `messages`, after the first step the ranks do nothing but send and receive (exchanges.hpp)
//   STYLE     session (a kolo::Session), calls (kolo::init and kolo::shutdown); how survivors end that are told of
//             an error: they leave in order, but for: escape (a session that the error's exception destroys), abort (as
//             an exception that nobody catches; a node's first rank, which the others hear of the job by, as `escape`)
//   NAME=...  variables that Kolo shall see
//
// A process of its own waits for the rank and notes what became of it, before it ends in the same way: mpirun's opinion
// of the job and the rank's own exit status are two things.
//
//   PROCESS pid            READY              STEPS n         HIT phase        CONTINUED
//   TOLD phase code sentence (an Error that the program caught)  WRONG text  LEFT (shutdown has returned)
//   HOLDS what (shared memory or a socket of the node that is still there)
//   EXIT status n          EXIT signal n      (by the process that waits)
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <kolo/kolo.hpp>

#include "base/settings.hpp"
#include "exchanges.hpp"
#include "facts.hpp"
#include "leftovers.hpp"
#include "tests/soak/plan.hpp"
#include "tests/soak/rank.hpp"
#include "victim.hpp"

namespace {

using kolo::chaos::Facts;
using kolo::chaos::Kind;
using kolo::chaos::Phase;
using kolo::chaos::Victim;

struct Flags {
  std::string folder;
  int rank = 0;
  std::uint64_t seed = 0;
  std::uint64_t steps = 0;
  kolo::chaos::Fate fate;
  std::chrono::milliseconds pause{0};
  bool session = false;
  bool escapes = false;  ///< the error's exception destroys the session,
  bool aborts = false;   ///< or ends the process
};

constexpr int kArguments = 12;

Flags parse(int argc, char** argv) {
  if (argc < kArguments) throw std::runtime_error("too few arguments");
  const auto number = [&](int i) { return std::stoll(argv[i]); };
  Flags flags;
  flags.folder = argv[1];
  const std::optional<std::string> rank = kolo::base::process_environment()(argv[2]);
  if (!rank) throw std::runtime_error(std::string("there is no ") + argv[2]);
  flags.rank = std::stoi(*rank);
  flags.seed = std::stoull(argv[3]);
  flags.steps = std::stoull(argv[4]);
  flags.fate.victim = flags.rank == number(5);
  flags.fate.kind = kolo::chaos::kind_of(argv[6]);
  flags.fate.phase = kolo::chaos::phase_of(argv[7]);
  flags.fate.event = number(8);
  flags.fate.delay = std::chrono::microseconds(number(9));
  flags.pause = std::chrono::milliseconds(number(10));
  const std::string style = argv[11];
  flags.session = style != "calls";
  flags.escapes = style == "escape" || style == "abort";
  flags.aborts = style == "abort";
  for (int i = kArguments; i < argc; ++i) {
    const std::string variable = argv[i];
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos) throw std::runtime_error("no variable: " + variable);
    if (::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1) != 0)
      throw std::runtime_error("setenv");
  }
  return flags;
}

// ---------------------------------------------------------------- the process that waits

/// Ends as the rank did.
[[noreturn]] void end_like(int status) {
  if (WIFEXITED(status)) ::_exit(WEXITSTATUS(status));
  std::signal(WTERMSIG(status), SIG_DFL);
  ::raise(WTERMSIG(status));
  ::_exit(EXIT_FAILURE);
}

/// Lets a rank that has stopped go on after a while, if that is its fate.
[[noreturn]] void watch(pid_t rank, const Flags& flags, Facts& facts) {
  const bool lets_go = flags.fate.victim && flags.fate.kind == Kind::slow;
  while (true) {
    int status = 0;
    if (::waitpid(rank, &status, lets_go ? WUNTRACED : 0) != rank) ::_exit(EXIT_FAILURE);
    if (WIFSTOPPED(status)) {
      std::this_thread::sleep_for(flags.pause);
      ::kill(rank, SIGCONT);
      facts.note("CONTINUED");
      continue;
    }
    facts.note(WIFEXITED(status) ? "EXIT status " + std::to_string(WEXITSTATUS(status))
                                 : "EXIT signal " + std::to_string(WTERMSIG(status)));
    end_like(status);
  }
}

// ---------------------------------------------------------------- the rank

/// Amid the steps.
std::uint64_t step_of_disagreement(const Flags& flags) {
  return 1 + static_cast<std::uint64_t>(flags.fate.event) % (flags.steps - 2);
}

void run_steps(const Flags& flags, kolo::soak::Rank& rank, Victim& victim, const kolo::soak::Limits& limits) {
  for (std::uint64_t number = 0; number < flags.steps; ++number) {
    if (number <= 1) victim.enter(number == 0 ? Phase::first_step : Phase::step);
    if (number == 1 && flags.fate.phase == Phase::messages) {
      rank.finish();
      victim.enter(Phase::messages);
      kolo::chaos::exchange_messages(flags.seed, [&victim] { victim.event(); });
      return kolo::barrier();  // a soak's rank that has finished makes no more steps
    }
    // Ranks wait for each other here, so that all survivors are told of what happened before.
    if (number + 1 == flags.steps) {
      kolo::barrier();
      victim.enter(Phase::last_step);
    }
    if (flags.fate.kind == Kind::disagree && number == step_of_disagreement(flags)) {
      rank.finish();
      victim.disagree();
    }
    rank.run(kolo::soak::step_of(flags.seed, 0, number, limits), number);
  }
  rank.finish();
}

void train(const Flags& flags, Victim& victim, Facts& facts) {
  kolo::Context& context = kolo::current_context();
  const kolo::soak::Limits limits{context.size(), 4000};
  auto rank = std::make_unique<kolo::soak::Rank>(context, flags.seed, 0, limits, [&victim] { victim.event(); });
  try {
    run_steps(flags, *rank, victim, limits);
  } catch (const kolo::Error&) {
    // Nobody touches its tensors any more: the error is fatal, or nothing was under way.
    throw;
  } catch (...) {
    static_cast<void>(rank.release());  // operations are under way: their memory must stay
    throw;
  }
  facts.note("STEPS " + std::to_string(flags.steps));
}

/// A survivor's end of a job that failed: it is told, and leaves.
int note(const kolo::Error& error, const Victim& victim, Facts& facts) {
  facts.note(std::string("TOLD ") + to_string(victim.phase()) + " " + std::string(kolo::to_string(error.code())) + " " +
             error.status().message());
  return kolo::chaos::kStatusOfTold;
}

/// Destroys the session of a rank that has been told.
struct Told {};

void note_end(Victim& victim, Facts& facts) {
  facts.note("LEFT");
  for (const std::string& one : kolo::chaos::leftovers()) facts.note("HOLDS " + one);
  victim.enter(Phase::after);
}

int run_with_calls(const Flags& flags, Victim& victim, Facts& facts) {
  int status = EXIT_SUCCESS;
  victim.enter(Phase::mpi_init);
  try {
    kolo::init();
    facts.note("READY");
    train(flags, victim, facts);
  } catch (const kolo::Error& error) {
    status = note(error, victim, facts);
  }
  victim.enter(Phase::shutdown);
  kolo::shutdown();
  note_end(victim, facts);
  return status;
}

int run_with_session(const Flags& flags, Victim& victim, Facts& facts) {
  int status = EXIT_SUCCESS;
  victim.enter(Phase::mpi_init);
  try {
    const kolo::Session session;
    facts.note("READY");
    try {
      train(flags, victim, facts);
    } catch (const kolo::Error& error) {             // caught inside the session, so that it is left in order
      if (flags.fate.kind == Kind::disagree) throw;  // but a job that leaves in order leaves no recorders
      if (flags.escapes) {
        note(error, victim, facts);
        if (flags.aborts && kolo::local_rank() != 0) std::abort();
        throw Told{};
      }
      status = note(error, victim, facts);
    }
    victim.enter(Phase::shutdown);
  } catch (const Told&) {
    status = kolo::chaos::kStatusOfTold;
  } catch (const kolo::Error& error) {
    status = note(error, victim, facts);
  }
  note_end(victim, facts);
  return status;
}

int be_the_rank(const Flags& flags, Facts& facts) {
  facts.note("PROCESS " + std::to_string(::getpid()));
  Victim& victim = *new Victim(flags.fate, facts);
  try {
    victim.enter(Phase::before);
    return flags.session ? run_with_session(flags, victim, facts) : run_with_calls(flags, victim, facts);
  } catch (const kolo::chaos::Leave&) {
    return kolo::chaos::kStatusOfReturn;
  } catch (const kolo::chaos::OwnFailure&) {
    return kolo::chaos::kStatusOfException;
  } catch (const std::exception& error) {
    facts.note(std::string("WRONG ") + error.what());
    return kolo::chaos::kStatusOfWrong;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Flags flags = parse(argc, argv);
    Facts& facts = *new Facts(flags.folder, flags.rank);
    const pid_t rank = ::fork();
    if (rank < 0) throw std::runtime_error("fork");
    if (rank > 0) watch(rank, flags, facts);
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) throw std::runtime_error("prctl");
    return be_the_rank(flags, facts);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_chaos: %s\n", error.what());
    return 2;
  }
}
