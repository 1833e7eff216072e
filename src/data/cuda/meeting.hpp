// SPDX-License-Identifier: Apache-2.0
//
// What the members of a process set tell each other before they use their devices together, and what follows from it:
// the same for all of them.
#pragma once

#include <string>
#include <vector>

#include <kolo/error.hpp>

#include "data/cuda/set_on_device.hpp"

namespace kolo::cuda {

/// One rank's word.
struct Word {
  std::string problem;        ///< why it cannot use its device; empty: it can
  bool lacks_memory = false;  ///< that is the problem
  std::string uuid;           ///< of its device
  std::string bus;            ///< with NCCL: the machine and the bus id, by which that tells GPUs apart
  bool shares = false;        ///< another context of its process uses that by NCCL
  std::string id;             ///< of the new communicator: from the set's rank 0, with NCCL
};
[[nodiscard]] std::string encode(const Word& word);
[[nodiscard]] Word decode(const std::string& text);
/// Of the exception that is being handled.
[[nodiscard]] Word problem_of_exception();

/// Whether the set can use its devices, from what all its ranks have said, by rank of the set.
[[nodiscard]] Status judge(const SetOnDevice& set, const std::vector<Word>& said, bool share_device);

}  // namespace kolo::cuda
