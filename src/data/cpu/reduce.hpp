// SPDX-License-Identifier: Apache-2.0
//
// Reduce to a root. The same arithmetic as an all-reduce (allreduce.hpp), in the same order and rounded at the same
// places, so that the root gets the same bits; but only the root takes a result. It goes one of three ways:
//
//   flat    one node, few ranks or a short run (routes.hpp). The others fill. When all have, the root reduces their
//           slots and its own input straight into its output; the others wait for nobody. One synchronisation, and the
//           fewest copies. The root alone adds.
//   slots   one node. The chunk is divided into a share a rank. When all have filled, rank j reduces share j over its
//           own input and the peers' slots, and writes the sum into the root's slot (the root: into its output), from
//           which the root takes when all have reduced. So the root reads and writes each line twice, however many
//           ranks there are. (With up to three, flat does not read more.)
//   lanes   several nodes. As an all-reduce's: rank j of each node reduces share j over its node into partial sums, and
//           exchanges them with rank j of the other nodes. The result comes to the root's node alone, whose ranks bring
//           it to the root's slot.
//
// Its chunks are cut, filled and summed as an all-reduce's. Tensors in regions are copied as any others.
#pragma once

#include "data/cpu/allreduce.hpp"
#include "data/cpu/small.hpp"

namespace kolo::data::cpu {

class Reduce final : public Allreduce {
 public:
  using Allreduce::Allreduce;
  static const SmallPart kSmall;
  /// Only the root's pieces need outputs; those of other ranks are left alone.
  void open(Runs runs, data::Job& job) override;
  [[nodiscard]] bool ready(const Chunk& chunk) const override;
  void take(const Chunk& chunk) override;

 private:
  [[nodiscard]] bool is_root() const noexcept { return root_ == site_.topology.rank; }
  [[nodiscard]] Part kept_share(const Chunk& chunk) const noexcept override;
  void reduce_out(const Chunk& chunk) override;

  int root_ = 0;  // of the set
};

}  // namespace kolo::data::cpu
