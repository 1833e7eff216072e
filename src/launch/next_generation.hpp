// SPDX-License-Identifier: Apache-2.0
//
// A process's part in an elastic job, by hand: it ends the world that it had, waits for the next generation, and makes
// a context for that.
//
//     Generations generations(base::process_environment());
//     while (std::optional<Generation> next = generations.next()) {
//       kolo::Context context(next->options());
//       generations.started();
//       ...                            // until a call fails, or all ranks agree that change_is_due()
//     }                                // the context has ended
//     // generations.farewell() says why none follows
//
// A thread answers the keeper, also while the program computes, and never calls the program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <kolo/options.hpp>

#include "base/settings.hpp"

namespace kolo::launch {

/// One world of an elastic job, for one of its ranks.
struct Generation {
  std::uint64_t number = 0;
  int rank = 0;
  int size = 1;
  std::string key;               ///< KOLO_JOB_KEY of this generation
  std::shared_ptr<Store> store;  ///< the keeper passes on where rank 0 listens

  /// `chosen`, and what this world needs. A context of them meets the others, and its start fails as soon as the keeper
  /// knows that a member is gone.
  [[nodiscard]] Options options(Options chosen = {}) const;
};

/// Thread-safe but for `next`, which one thread at a time calls, and construction and destruction.
class Generations {
 public:
  /// Connects to the kolo-run that has started this process. Throws Error: invalid_argument if none has, or it was not
  /// told that ranks may come and go; transport if it cannot be reached.
  explicit Generations(const base::Lookup& environment);
  /// Without it the keeper soon leaves this process out: end it then.
  ~Generations();
  Generations(const Generations&) = delete;
  Generations& operator=(const Generations&) = delete;

  /// Call it when no context of the last generation is open on this rank. Waits until the keeper begins the next
  /// generation. Nothing: there is none for this process. Throws Error (transport) if kolo-run has ended.
  [[nodiscard]] std::optional<Generation> next();
  /// The context of this generation is there.
  void started();
  /// This rank has done its work. Waits until all have, and returns true: end the process. False: a member has gone
  /// before it was done, so another generation follows, for which the others need this rank: call `next`. Throws Error
  /// (transport) if kolo-run has ended.
  [[nodiscard]] bool finish();
  /// This process wants out: `change_is_due` follows, and then nothing at `next`.
  void leaving();
  /// This generation is to end.
  [[nodiscard]] bool change_is_due() const;
  /// Why it cannot go on, because a member is gone; empty: it can.
  [[nodiscard]] std::string trouble() const;
  /// Why no generation follows for this process; empty: one may.
  [[nodiscard]] std::string farewell() const;

 private:
  class Link;
  const std::string job_key_;
  const std::shared_ptr<Link> link_;  // stores of generations share it
};

}  // namespace kolo::launch
