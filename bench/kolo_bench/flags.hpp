// SPDX-License-Identifier: Apache-2.0
//
// The command line: what nccl-tests' users expect, and what is ours.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <kolo/types.hpp>

#include "models.hpp"

namespace kolo_bench {

/// A wrong command line; what() says what would be right. Exit code 2.
struct BadFlags : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

enum class Mode {
  allreduce,
  reduce,
  broadcast,
  allgather,
  gather,
  scatter,
  alltoall,
  reduce_scatter,
  barrier,
  sendrecv,
  pingpong,
  join,
  step,
  overlap,
  latency,
  memory
};
enum class Baseline { mpi, mpi_per_tensor, mpi_packed, nccl, nccl_per_tensor, nccl_grouped };
/// How a step's gradients are submitted.
enum class Submission { by_name, unnamed, prepared, grouped };
/// "mpi", "mpi-per-tensor", ...
std::string to_string(Baseline baseline);
/// Whether it works on a GPU.
bool is_nccl(Baseline baseline);
/// "by-name", "unnamed", "prepared", "grouped".
std::string to_string(Submission submission);

/// This job's place among jobs that measure in turns (turns.hpp).
struct TurnFlags {
  int index = 0;
  int jobs = 1;
  std::string folder;
};

/// Of "I/N:FOLDER". Throws BadFlags.
TurnFlags parse_turn(const std::string& text);

struct Flags {
  Mode mode = Mode::allreduce;
  std::string mode_name;
  std::int64_t begin = 4;
  std::int64_t end = std::int64_t{64} << 20;
  std::int64_t factor = 4;                ///< from size to size; ignored with a step
  std::optional<std::int64_t> increment;  ///< -i: bytes from size to size
  int iterations = 20;                    ///< -n: at least so many samples
  int warmup = 5;
  bool check = true;
  std::vector<kolo::DType> dtypes;
  std::vector<kolo::ReduceOp> ops;
  int root = 0;   ///< of a broadcast, reduce, gather or scatter; of small ones the first
  int split = 0;  ///< ranks of a group, all of which do the same at once; 0: one group of all
  bool in_place = true;
  bool out_of_place = true;
  double seconds = 1.0;  ///< a row takes no longer, samples permitting
  std::vector<Baseline> baselines;
  bool peer_only = false;
  Model model;  ///< step, overlap, memory: from --model or --shapes
  std::vector<Submission> submissions;
  bool arena = false;     ///< allreduce, step, overlap: buffers lie in a GradientArena
  bool cuda = false;      ///< buffers lie on each rank's GPU
  double compute_ms = 0;  ///< overlap; 0: as long as the reduction takes
  bool timeline = false;  ///< overlap: the record has the times of one step
  TurnFlags turn;
  std::string json;
};

/// Empty when there is nothing more to do (--help, --version or --list has been printed). Throws BadFlags.
std::optional<Flags> parse_flags(int argc, const char* const* argv);

}  // namespace kolo_bench
