// SPDX-License-Identifier: Apache-2.0
//
// Which class runs which kind of collective, and how that goes as a small call.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/collectives.hpp"
#include "data/cpu/collective.hpp"
#include "data/cpu/small.hpp"

namespace kolo::data::cpu {

/// What any kind of collective wants of the mesh for a chunk.
MeshBytes mesh_bytes(const core::Topology& topology, std::size_t slot_bytes) noexcept;

/// How a kind goes as a small call; null: it does not.
const SmallPart* small_part(core::CollectiveKind kind) noexcept;

/// A set's collectives, used again and again. One driver.
class Collectives {
 public:
  explicit Collectives(Site& site);
  /// One of this kind that runs nothing, until it is given back.
  [[nodiscard]] Collective& lend(core::CollectiveKind kind);
  void give_back(core::CollectiveKind kind, Collective& collective);

 private:
  struct Pool {
    std::vector<std::unique_ptr<Collective>> all;
    std::vector<Collective*> idle;
  };
  [[nodiscard]] std::unique_ptr<Collective> make(core::CollectiveKind kind);

  Site& site_;
  std::array<Pool, core::kCollectiveCount> pools_;  // by kind
};

}  // namespace kolo::data::cpu
