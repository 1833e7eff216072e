// SPDX-License-Identifier: Apache-2.0
//
// What a person, or a program, sees of a run.
#pragma once

#include <string>

#include "flags.hpp"
#include "trainer.hpp"

namespace train_digits {

/// A bar that moves in place on a terminal, one line an epoch elsewhere.
class Progress {
 public:
  /// `epochs` in total; prints nothing when `quiet`.
  Progress(int epochs, bool quiet);
  void show(int epoch, double loss) const;

 private:
  int epochs_;
  bool quiet_;
  bool terminal_;
};

/// One line on standard output.
void print_summary(const TrainResult& result);

/// Writes the result as JSON. Throws std::runtime_error.
void write_json(const std::string& path, const TrainResult& result, const Flags& flags);

}  // namespace train_digits
