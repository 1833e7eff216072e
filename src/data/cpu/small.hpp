// SPDX-License-Identifier: Apache-2.0
//
// Small calls (data/small_calls.hpp) on the CPU. A short input lies beside its rank's word, a longer one in its
// payload. Each kind of collective that offers this route has a `SmallPart`, which its row of the registry names: what
// it copies for its peers, and what it takes of their inputs. This file has what the parts share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "data/cpu/routes.hpp"
#include "data/kernels/copy.hpp"
#include "data/small_calls.hpp"

namespace kolo::data::cpu {

class CpuSmallCalls;
/// How a kind goes as a small call.
struct SmallPart {
  /// As SmallCalls::lay_out and SmallCalls::take.
  bool (*lay_out)(CpuSmallCalls& calls, const SmallCall& call);
  void (*take)(CpuSmallCalls& calls, const SmallCall& call);
};

class CpuSmallCalls final : public SmallCalls {
 public:
  /// `to_peers`: how inputs are written.
  CpuSmallCalls(core::ShortcutMemory memory, const Routes& routes, kernels::PeerCopy to_peers);
  [[nodiscard]] bool lay_out(core::Round number, const SmallCall& call) override;
  void expect_next() noexcept override;
  void take(const SmallCall& call) override;

  // -- for parts
  /// A range of an input, in bytes.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  /// In front of some inputs: eight bytes that say more of it.
  using Head = std::int64_t;

  [[nodiscard]] int ranks() const noexcept { return memory_.ranks(); }
  [[nodiscard]] int own() const noexcept { return memory_.local_rank(); }
  [[nodiscard]] bool is_root(const SmallCall& call) const noexcept { return call.root == own(); }
  /// A short input lies beside the word, behind `head` bytes; a longer one in the payload.
  [[nodiscard]] bool fits(std::size_t bytes, std::size_t head = 0) const noexcept;
  [[nodiscard]] std::byte* input_of(int rank, std::size_t bytes, std::size_t head = 0) const noexcept;
  void write_head(Head head) const noexcept;
  [[nodiscard]] Head head_of(int rank) const noexcept;

  // Laying out; `unread`: what no peer reads.
  void copy_in(const SmallCall& call, std::byte* to, Range unread);
  /// An input as long on all ranks. False: it does not fit.
  [[nodiscard]] bool lay_out_input(const SmallCall& call, Range unread);
  /// An input behind its length.
  [[nodiscard]] bool lay_out_contribution(const SmallCall& call, Range unread);

  /// Reduces this range of all inputs into the output.
  void reduce(const SmallCall& call, Range range);
  /// Copies all contributions into the output, in the order of their ranks.
  void take_contributions(const SmallCall& call);

  std::vector<std::int64_t> lengths;  ///< by rank: the argument of `make_room`

 private:
  const core::ShortcutMemory memory_;
  const Routes routes_;
  const kernels::PeerCopy copy_;
  core::Round number_ = 0;
  std::size_t laid_out_ = 0;         // bytes that have been copied for peers in this call
  std::vector<const void*> inputs_;  // the arguments of a reduction, by rank
};

[[nodiscard]] inline CpuSmallCalls::Range whole(const SmallCall& call) noexcept { return {0, call.bytes()}; }
/// Copies within a rank, or from a peer's input, unless it is there.
void copy_out(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace kolo::data::cpu
