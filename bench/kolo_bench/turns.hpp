// SPDX-License-Identifier: Apache-2.0
//
// Several jobs that measure in turns. A peer in the same process is measured beside Kolo's threads, and every launch of
// mpirun has one binding and one set of MCA parameters only. So that a peer in processes of its own, or with other
// parameters, is measured under the same conditions all the same, N jobs are started at once, and between samples
// only one of them runs: the others' ranks all sleep in a read(), and cost nothing.
//
// For each rank a token goes around the jobs through named pipes, FOLDER/<job>.<rank>: rank r of job k reads from its
// own and writes to that of rank r of job k+1. The first job decides, by its own samples, when a row has enough; it
// then sends a token that says so, and the others end the row too. All jobs must run the same number of rows on the
// same number of ranks.
#pragma once

#include <string>

#include "flags.hpp"

namespace kolo_bench {

class Turns {
 public:
  /// Makes the pipes that are not there yet. Throws std::system_error.
  Turns(const TurnFlags& flags, int rank);
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// Whether there are other jobs, during whose turns this one sleeps.
  [[nodiscard]] bool alone() const { return alone_; }
  /// Whether this job decides when a row has enough samples.
  [[nodiscard]] bool leads() const { return index_ == 0; }
  /// Waits for this job's turn. False: the row has ended, and only `end` is left to do. Throws Interrupted.
  [[nodiscard]] bool begin();
  /// Passes the turn on; `row_ended` is the first job's word, and is passed on by the others.
  void end(bool row_ended);

 private:
  const int index_;
  const bool alone_;
  int own_ = -1;
  int next_ = -1;
};

}  // namespace kolo_bench
