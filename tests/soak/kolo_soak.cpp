// SPDX-License-Identifier: Apache-2.0
//
// kolo-soak: random steps without end, every byte compared. Worlds with unusual settings come and go; in each, steps of
// random lists of tensors are submitted in another order on every rank, by one or more threads, waited for in every
// way there is, or left open for later steps. Everything follows from the seed.
//
//     kolo-soak --threads 4 --steps 1000              ranks as threads
//     mpirun -np 4 kolo-soak --steps 100000           ranks as processes
//     kolo-soak --threads 4 --seed 7 --world 12       one world again: what a failure printed
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include <kolo/kolo.hpp>

#include "plan.hpp"
#include "rank.hpp"

namespace {

namespace soak = kolo::soak;

struct Flags {
  std::uint64_t seed = 1;
  std::uint64_t steps = 300;
  std::uint64_t world_steps = 100;
  std::optional<std::uint64_t> world;  ///< only this one
  std::int64_t largest = 1 << 20;
  int threads = 0;                 ///< 0: the job's processes
  std::uint64_t most_wait_ms = 0;  ///< 0: as long as it takes
};

struct BadFlags : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr const char* kHelp =
    R"(kolo-soak [flags]: random steps on all ranks of the job, every byte compared.

  --seed S           everything follows from it (1)
  --steps N          in all (300)
  --world-steps N    after so many steps the world ends, and another begins with other settings (100)
  --world W          only this world
  --largest N        elements of the largest tensor (1048576)
  --threads N        N ranks as threads, instead of the job's processes
  --most-wait-ms N   a wait that lasts longer is a failure

The last lines name the longest wait, and end in PASS.

Exit status: 0 all was right, 1 something was not (seed, world, step and operation are told), 2 wrong flags.
)";

std::uint64_t number_of(const char* flag, const char* text) {
  std::size_t used = 0;
  std::uint64_t value = 0;
  try {
    value = std::stoull(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || text[used] != '\0') throw BadFlags(std::string(flag) + " takes a number, not '" + text + "'");
  return value;
}

/// Empty: the help was printed.
std::optional<Flags> parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const char* flag = argv[i];
    if (std::strcmp(flag, "--help") == 0) return std::fputs(kHelp, stdout), std::nullopt;
    if (i + 1 == argc) throw BadFlags(std::string(flag) + " is no flag, or lacks its number");
    const std::uint64_t value = number_of(flag, argv[++i]);
    const std::string name = flag;
    if (name == "--seed") {
      flags.seed = value;
    } else if (name == "--steps") {
      flags.steps = value;
    } else if (name == "--world-steps" && value > 0) {
      flags.world_steps = value;
    } else if (name == "--world") {
      flags.world = value;
    } else if (name == "--largest" && value > 0) {
      flags.largest = static_cast<std::int64_t>(value);
    } else if (name == "--most-wait-ms" && value > 0) {
      flags.most_wait_ms = value;
    } else if (name == "--threads" && value > 0 && value <= 8) {
      flags.threads = static_cast<int>(value);
    } else {
      throw BadFlags("there is no " + name + " " + std::to_string(value));
    }
  }
  return flags;
}

/// One world, on this rank. Rank 0 keeps the longest wait of all.
void run_world(const Flags& flags, std::uint64_t world, std::uint64_t steps, const soak::Limits& limits,
               double& longest_wait_s) {
  kolo::Context& context = kolo::current_context();
  soak::Rank rank(context, flags.seed, world, limits);
  for (std::uint64_t number = 0; number < steps; ++number) {
    try {
      rank.run(soak::step_of(flags.seed, world, number, limits), number);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "kolo-soak: --seed %llu --world %llu, step %llu, rank %d of %d: %s\n",
                   static_cast<unsigned long long>(flags.seed), static_cast<unsigned long long>(world),
                   static_cast<unsigned long long>(number), context.rank(), context.size(), error.what());
      throw;
    }
  }
  rank.finish();
  const soak::Wait longest = rank.longest_wait();
  const std::uint64_t milliseconds = static_cast<std::uint64_t>(1000 * longest.seconds);
  if (flags.most_wait_ms > 0 && milliseconds > flags.most_wait_ms) {
    throw std::runtime_error("rank " + std::to_string(context.rank()) + " waited " + std::to_string(milliseconds) +
                             " ms for " + longest.what + " in world " + std::to_string(world) + ", step " +
                             std::to_string(longest.step) + ", more than " + std::to_string(flags.most_wait_ms));
  }
  double slowest = longest.seconds;
  allreduce(context, kolo::view(&slowest, kolo::Shape{1}), kolo::AllreduceOptions{}.with_op(kolo::ReduceOp::max));
  if (context.rank() == 0 && slowest > longest_wait_s) longest_wait_s = slowest;
}

/// How many processes the launcher has started.
int size_of_job() {
  const kolo::Session session;
  return kolo::size();
}

void run(const Flags& flags) {
  const soak::Limits limits{flags.threads > 0 ? flags.threads : size_of_job(), flags.largest};
  bool speaks = true;
  double longest_wait_s = 0;
  for (std::uint64_t world = flags.world.value_or(0), done = 0; done < flags.steps; ++world) {
    const std::uint64_t steps = std::min(flags.world_steps, flags.steps - done);
    const kolo::Options options = soak::options_of(flags.seed, world, limits.ranks);
    if (flags.threads > 0) {
      kolo::run_local(
          flags.threads, [&] { run_world(flags, world, steps, limits, longest_wait_s); }, options);
    } else {
      const kolo::Session session(options);
      speaks = kolo::rank() == 0;
      run_world(flags, world, steps, limits, longest_wait_s);
    }
    done += steps;
    if (flags.world) break;
    if (speaks && (done == flags.steps || (world + 1) % 20 == 0)) {
      std::printf("%llu steps right (seed %llu, %d ranks)\n", static_cast<unsigned long long>(done),
                  static_cast<unsigned long long>(flags.seed), limits.ranks);
      std::fflush(stdout);
    }
  }
  if (speaks) std::printf("longest wait %.3f s\nPASS\n", longest_wait_s);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (const std::optional<Flags> flags = parse(argc, argv)) run(*flags);
    return 0;
  } catch (const BadFlags& error) {
    std::fprintf(stderr, "kolo-soak: %s (see --help)\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kolo-soak: %s\n", error.what());
    return 1;
  }
}
