// SPDX-License-Identifier: Apache-2.0
//
// A communication hook of DistributedDataParallel: its buckets lie in a GradientArena, where they are reduced in place.
#pragma once

#include <cstddef>
#include <memory>

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <kolo/gradient_arena.hpp>

#include "c10d/process_group.hpp"
#include "c10d/versions.hpp"

namespace kolo::c10d {

/// Averages. A bucket that is seen for the first time moves into the arena: its storage keeps its identity, so
/// gradients that are views of it (`gradient_as_bucket_view`) move with it. One that finds no room stays where it is.
/// The arena lives as long as a bucket in it.
class ArenaHook final : public ::c10d::CppCommHookInterface<c10::intrusive_ptr<ProcessGroupKolo>> {
 public:
  /// Collective over the group's ranks, which give the same number of bytes. `device` is that of the gradients. Throws
  /// as the group's calls.
  ArenaHook(c10::intrusive_ptr<ProcessGroupKolo> group, std::size_t bytes, at::Device device);
  c10::intrusive_ptr<c10::ivalue::Future> runHook(::c10d::GradBucket& bucket) override;

 private:
  void take_in(const at::Tensor& bucket);

  const at::Device device_;
  std::shared_ptr<GradientArena> arena_;
};

}  // namespace kolo::c10d
