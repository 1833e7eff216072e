// SPDX-License-Identifier: Apache-2.0
//
// What collectives compute, over plain memory. Sums are made in rank order and rounded to the type after every
// addition, as a ring of NCCL's does; an average multiplies each input by 1/n first, rounded to the type, as ncclAvg
// does.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nccl.h>

namespace kolo::emulated {

enum class Collective : unsigned char {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  send,
  receive
};

/// All that ranks must agree on. A send and its receive have the same but for the kind.
struct Signature {
  Collective kind = Collective::all_reduce;
  std::size_t count = 0;  ///< as given in the call
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;  ///< of reductions
  int root = 0;              ///< of what has a root; the peer of point-to-point calls
};

/// "ncclAllReduce of 1024 float32, sum".
std::string to_string(const Signature& signature);
/// Whether two ranks' calls belong together.
bool agree(const Signature& a, const Signature& b);

/// 0 for a type that is not emulated (8-bit floats).
std::size_t element_bytes(ncclDataType_t type);
bool is_operator(ncclRedOp_t op);

/// What a rank of a clique of `size` gives and gets, in bytes; 0 where it does not.
std::size_t input_bytes(const Signature& signature, int rank, int size);
std::size_t output_bytes(const Signature& signature, int rank, int size);

struct Buffers {
  const void* input = nullptr;
  void* output = nullptr;
};
/// Runs the collective over all ranks' buffers; for point-to-point, {sender, receiver}. Outputs may be inputs.
void compute(const Signature& signature, const std::vector<Buffers>& ranks);

}  // namespace kolo::emulated
