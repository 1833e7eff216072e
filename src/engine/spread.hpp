// SPDX-License-Identifier: Apache-2.0
//
// Ranks that share CPUs, evenly on them.
//
// Ranks that wait for each other give their turns away, thousands of times a second, so none of them ever sleeps and
// each has always just run. The system leaves such threads where they are for seconds: three of four ranks on one of
// two CPUs, for a third of the time, and everybody waits for those three. So each rank says on which CPU it is, and one
// that sees two more ranks on its own than on another one it may use goes there: it asks to run there only, and at once
// to run where it might before, and stays because the system leaves it there, too. Nobody else's affinity is touched,
// and the own one is as it was when the call returns.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "control/express.hpp"

namespace kolo::engine {

/// Where rank `self` should go, one of `allowed`; nothing: where it is. `cpus` by rank, negative where unknown. Of
/// several ranks on a CPU the last is the first to go.
std::optional<int> better_cpu(const std::vector<int>& cpus, int self, const std::vector<int>& allowed);

/// One rank's. One caller at a time, in a call that it may wait in.
class Spread {
 public:
  /// Looks from time to time, and goes.
  void look(control::Express& express) noexcept;

 private:
  void look_around(control::Express& express, base::Time now);

  bool off_ = false;  // the system does not tell, or does not let us
  base::Time next_{};
  std::vector<int> cpus_;
};

}  // namespace kolo::engine
