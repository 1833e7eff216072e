// SPDX-License-Identifier: Apache-2.0
//
// The command line.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "trainer.hpp"

namespace train_digits {

struct Flags {
  TrainOptions train;
  int local = 0;  // ranks as threads of this process; 0: as the launcher says
  std::string data;
  std::string dtype = "float32";  // or "float64"
  std::string json;               // empty: none
  bool quiet = false;
};

/// A command line that cannot be followed; what() says what would be right.
struct BadFlags : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws BadFlags. Empty when help was asked for; it is printed then.
std::optional<Flags> parse_flags(int argc, char** argv);

/// What depends on the data: throws BadFlags when there are too few images for the flags.
void check_against(const Flags& flags, std::size_t images);

}  // namespace train_digits
