// SPDX-License-Identifier: Apache-2.0
//
// What a `Context` is made of: an engine, and what it was assembled from.
#pragma once

#include <memory>
#include <string>

#include <kolo/context.hpp>

#include "core/bootstrap.hpp"
#include "core/node_link.hpp"
#include "core/regions.hpp"
#include "engine/engine.hpp"

namespace kolo::detail {

class ContextImpl {
 public:
  ContextImpl(std::unique_ptr<core::Bootstrap> bootstrap, std::shared_ptr<engine::Engine> engine,
              std::shared_ptr<core::NodeLink> link, std::shared_ptr<core::Regions> regions)
      : bootstrap_(std::move(bootstrap)), link_(std::move(link)), regions_(std::move(regions)),
        engine_(std::move(engine)) {}

  [[nodiscard]] engine::Engine& engine() const noexcept { return *engine_; }
  [[nodiscard]] const std::shared_ptr<engine::Engine>& shared_engine() const noexcept { return engine_; }
  [[nodiscard]] core::NodeLink& link() const noexcept { return *link_; }
  [[nodiscard]] const std::shared_ptr<core::Regions>& regions() const noexcept { return regions_; }
  [[nodiscard]] std::string describe_bootstrap() const { return bootstrap_->describe(); }
  /// Ends the engine; while an exception unwinds (`reason` is not empty) without waiting for the others. Not inside a
  /// callback of on_done.
  void close(const std::string& reason) noexcept;

 private:
  const std::unique_ptr<core::Bootstrap> bootstrap_;  // outlives what was made with it
  const std::shared_ptr<core::NodeLink> link_;
  const std::shared_ptr<core::Regions> regions_;
  const std::shared_ptr<engine::Engine> engine_;
};

}  // namespace kolo::detail
